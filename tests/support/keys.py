# SPDX-License-Identifier: Apache-2.0
"""Public keys in the form that sshd reads. The private ones do not exist."""

from __future__ import annotations

import base64

__all__ = ["ed25519", "line", "packed", "sha512"]


def packed(*fields: bytes | str) -> bytes:
    """Each field with its length before it."""
    encoded = [field.encode() if isinstance(field, str) else field for field in fields]
    return b"".join(len(field).to_bytes(4) + field for field in encoded)


def line(kind: str, *fields: bytes | str, comment: str = "me", rest: bytes = b"") -> str:
    """A line of authorized_keys; ``rest`` comes behind the last field as it is."""
    return f"{kind} {base64.b64encode(packed(kind, *fields) + rest).decode()} {comment}"


def ed25519(seed: str, comment: str = "me") -> str:
    return line("ssh-ed25519", seed.encode().ljust(32, b"."), comment=comment)


def sha512(word: str) -> str:
    """Text in the form of a password hash, which no password has."""
    return f"$6$salt${word:.<86}"
