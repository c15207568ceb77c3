# SPDX-License-Identifier: Apache-2.0
"""Decode data of any origin to declared types. All modules use this instead of the decoders of msgspec.

Before version 0.20, the errors of msgspec are no ``ValueError``; Debian 13 has 0.19.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from nodeagent.reasons import decode_reason

T = TypeVar("T")


def convert(data: object, kind: type[T]) -> T:
    """Return plain data (of JSON, YAML or TOML) as an object of ``kind``. Keys that it does not declare are dropped.

    Raises ``ValueError`` for every fault; it names the place and the types.
    """
    try:
        return msgspec.convert(data, kind, dec_hook=decode_reason)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from None


def from_json(text: str | bytes, kind: type[T]) -> T:
    """Return a JSON document as an object of ``kind``, as ``convert`` does, but several times as fast. The caller
    bounds the size."""
    try:
        return msgspec.json.decode(text, type=kind, dec_hook=decode_reason)
    except RecursionError:
        raise ValueError("nested too deep") from None
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None
