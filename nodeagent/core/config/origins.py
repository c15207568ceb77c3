# SPDX-License-Identifier: Apache-2.0
"""The names of the MachineConfigs that the entries of a merged config come from, as an annotation of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from nodeagent.core.config.paths import has_control

ANNOTATION: Final = "nodeagent.org/origins"

Origins = Mapping[str, Sequence[str]]

_DECODER: Final = msgspec.json.Decoder(dict[str, tuple[str, ...]])


def origins_to_text(origins: Origins) -> str:
    return msgspec.json.encode(origins, order="sorted").decode()


def read_origins(metadata: Mapping[str, Any] | None) -> Origins:
    """Return the origins in the metadata of an object, empty without a valid annotation: it only explains."""
    annotations = (metadata or {}).get("annotations")
    text = annotations.get(ANNOTATION) if isinstance(annotations, Mapping) else None
    if not isinstance(text, str):
        return {}
    try:
        origins = _DECODER.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return {}
    return {} if any(has_control(name) for names in origins.values() for name in names) else origins
