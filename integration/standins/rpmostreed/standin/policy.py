# SPDX-License-Identifier: Apache-2.0
"""/etc/containers/policy.json, as far as it decides about an image. A host without one accepts all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from integration.standins.rpmostreed.standin.errors import Failed
from integration.standins.rpmostreed.standin.refspec import ImageReference

POLICY = Path("/etc/containers/policy.json")


def check(reference: ImageReference, signature: str) -> None:
    """`signature` is what the image has: good, bad or none. Raises Failed in the words of containers/image."""
    policy = json.loads(POLICY.read_text()) if POLICY.exists() else {"default": [{"type": "insecureAcceptAnything"}]}
    default = policy.get("default", [])
    if reference.signature == "signed" and any(one["type"] == "insecureAcceptAnything" for one in default):
        raise Failed("containers-policy.json specifies a default of `insecureAcceptAnything`; refusing usage")
    for requirement in _requirements(policy, reference):
        match requirement["type"], signature:
            case "insecureAcceptAnything", _:
                continue
            case "reject", _:
                raise Failed(f"Running image {reference.image} is rejected by policy.")
            case _, "good":
                continue
            case _, "bad":
                raise Failed(
                    "cryptographic signature verification failed: invalid signature when validating ASN.1 "
                    "encoded signature"
                )
            case _:
                raise Failed("A signature was required, but no signature exists")


def _requirements(policy: dict[str, Any], reference: ImageReference) -> list[dict[str, Any]]:
    scopes = policy.get("transports", {}).get("docker" if reference.transport == "registry" else reference.transport)
    scope = reference.name
    while scopes and scope:
        if scope in scopes:
            return list(scopes[scope])
        scope = scope.rpartition("/" if ":" not in scope.rpartition("/")[2] else ":")[0]
    if scopes and "" in scopes:
        return list(scopes[""])
    return list(policy.get("default", []))
