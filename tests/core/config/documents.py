# SPDX-License-Identifier: Apache-2.0
"""MachineConfig documents for tests, and the ways to write the same one differently."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any
from urllib.parse import quote

import pytest

from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.parse import API_VERSION, KIND, parse
from nodeagent.errors import InvalidInput, Problem

Doc = dict[str, Any]
FILES = "spec.config.storage.files"
UNITS = "spec.config.systemd.units"
USERS = "spec.config.passwd.users"
KEY = "ssh-ed25519 AAAA me"
A = {"source": "data:,a"}


def document(config: Doc | None = None, *, name: str = "rendered-worker-1", version: str = "3.4.0", **spec: Any) -> Doc:
    """A MachineConfig; ``config`` are the sections of the Ignition config beside its version."""
    if config is not None:
        spec["config"] = {"ignition": {"version": version}, **config}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec}


def with_files(*files: Doc, **more: Any) -> Doc:
    return document({"storage": {"files": list(files)}}, **more)


def with_units(*units: Doc, **more: Any) -> Doc:
    return document({"systemd": {"units": list(units)}}, **more)


def with_users(*users: Doc) -> Doc:
    return document({"passwd": {"users": list(users)}})


def file(path: str = "/etc/a", text: str = "", **more: Any) -> Doc:
    return {"path": path, "contents": {"source": plain(text.encode())}, **more}


def plain(data: bytes) -> str:
    return "data:," + quote(data)


def in_base64(data: bytes) -> str:
    return "data:text/plain;charset=utf-8;base64," + base64.b64encode(data).decode()


def packed(data: bytes) -> Doc:
    return {"source": in_base64(gzip.compress(data, mtime=0)), "compression": "gzip"}


def text(doc: object) -> bytes:
    return json.dumps(doc).encode()


def problems(doc: object) -> tuple[Problem, ...]:
    """The problems of ``doc`` in JSON, which is invalid as YAML as well."""
    with pytest.raises(InvalidInput) as caught:
        parse(text(doc))
    found = caught.value.problems
    with pytest.raises(InvalidInput) as caught:
        parse(as_yaml(doc))
    return found


def as_yaml(doc: object) -> bytes:
    """JSON is YAML, if it does not look like JSON to us."""
    return b"--- " + text(doc)


def paths_of(doc: object) -> list[str]:
    return [problem.path for problem in problems(doc)]


def parsed(doc: Doc) -> MachineConfig:
    """Read as JSON and as YAML, with the same result."""
    config = parse(text(doc))
    assert parse(as_yaml(doc)) == config
    return config
