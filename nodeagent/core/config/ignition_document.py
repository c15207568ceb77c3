# SPDX-License-Identifier: Apache-2.0
"""An Ignition config as it is: what ``butane`` writes for Fedora CoreOS becomes a MachineConfig around it."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

import msgspec

from nodeagent import typed
from nodeagent.core.config.text.document import is_json

_BOM: Final = b"\xef\xbb\xbf"
# Characters of the digest in the name of the result.
_DIGEST: Final = 12


class _Document(msgspec.Struct):
    kind: Any = None
    ignition: Any = None


def as_machine_config(text: bytes, name: str = "") -> bytes:
    """Return the MachineConfig of an Ignition config in JSON; any other text as it is. Equal texts give equal bytes.

    Without ``name``, it is named after the digest of the text. Blocks for milliseconds.
    """
    stripped = text.removeprefix(_BOM).strip()
    if not _is_ignition(stripped):
        return text
    metadata = {"name": name or f"ignition-{hashlib.sha256(stripped).hexdigest()[:_DIGEST]}"}
    head = {"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig", "metadata": metadata}
    # The text stays as it was written: the parser reports its problems.
    return json.dumps(head)[:-1].encode() + b', "spec": {"config": ' + stripped + b"}}"


def _is_ignition(text: bytes) -> bool:
    if not is_json(text):
        return False
    try:
        document = typed.from_json(text, _Document)
    except ValueError:
        return False
    return document.kind is None and isinstance(document.ignition, dict)
