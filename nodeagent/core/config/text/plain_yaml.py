# SPDX-License-Identifier: Apache-2.0
"""Decode YAML of other programs, such as a kubeconfig or a manifest of a pod, as PyYAML reads it.

Configs and settings have readers of their own, with stricter rules. The caller bounds the size.
"""

from __future__ import annotations

from typing import Any

import yaml


def loads(text: bytes) -> Any:
    """Return the data of one YAML document. Raises ``ValueError`` for every fault, without words of the text."""
    try:
        return yaml.safe_load(text)
    except Exception:  # noqa: BLE001 - a value that does not fit its tag raises KeyError, IndexError or AttributeError
        raise ValueError("not YAML") from None
