# SPDX-License-Identifier: Apache-2.0
"""Faults of the registry on a host with bootc, and what was requested of it (`small_registry`)."""

from __future__ import annotations

import json
from typing import Any

from integration.hosts.ostree import small_registry
from integration.hosts.testhost import TestHost
from integration.trees import parts


def misbehave(host: TestHost, **fault: Any) -> None:
    host.write(f"{parts.REGISTRY_STATE}/{small_registry.FAULTS}", json.dumps(fault))


def behave(host: TestHost) -> None:
    host.run(["rm", f"{parts.REGISTRY_STATE}/{small_registry.FAULTS}"])


def requests(host: TestHost) -> list[str]:
    return host.read_text(f"{parts.REGISTRY_STATE}/{small_registry.REQUESTS}").splitlines()


def blobs(host: TestHost) -> set[str]:
    return {line.rpartition("/")[2] for line in requests(host) if "/blobs/" in line}


def wait_pulling(host: TestHost, timeout: float) -> None:
    """Wait until a blob is on the way."""
    host.wait_for(lambda: blobs(host), "a layer is on the way", timeout)
