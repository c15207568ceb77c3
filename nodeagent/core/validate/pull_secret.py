# SPDX-License-Identifier: Apache-2.0
"""Check registry credentials: ``{"auths": {"registry": {"auth": "base64(user:password)"}}}``, for kubelet and CRI-O.

The effect of a broken pull secret appears at the next pull of an image, possibly days later and on all nodes at once.
Problems name the registry and never the content of its entry.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator

from nodeagent.core.config.problems import kind_of, shown
from nodeagent.core.config.text.document import load_strict


def check(content: bytes) -> Iterator[str]:
    data, problems = load_strict(content)
    yield from problems
    if problems:
        return
    if not isinstance(data, dict):
        yield f"must be an object, is {kind_of(data)}"
        return
    auths = data.get("auths")
    if not isinstance(auths, dict):
        yield "auths is missing" if auths is None else f"auths must be an object, is {kind_of(auths)}"
        return
    helpers = data.get("credHelpers")
    helped = set(helpers) if isinstance(helpers, dict) else set()
    for registry, entry in auths.items():
        if problem := _entry_problem(entry, helped=registry in helped or bool(data.get("credsStore"))):
            # Redaction hides the text that follows "auths:". Some put a user:password@ into the name.
            yield f"registry {shown(registry.rpartition('@')[2])}: {problem}"


def _entry_problem(entry: object, *, helped: bool) -> str:
    if not isinstance(entry, dict):
        return f"must be an object, is {kind_of(entry)}"
    words = {key: entry.get(key) for key in ("auth", "username", "password", "identitytoken", "registrytoken")}
    for key, value in words.items():
        if value is not None and not isinstance(value, str):
            return f"{key} must be a string, is {kind_of(value)}"
    if words["auth"]:
        return _auth_problem(str(words["auth"]))
    if (words["username"] and words["password"]) or words["identitytoken"] or words["registrytoken"] or helped:
        return ""
    return "has no credentials"


def _auth_problem(auth: str) -> str:
    try:
        # base64 of coreutils breaks its lines, and the decoder of Go skips line breaks.
        decoded = base64.b64decode("".join(auth.split("\n")), validate=True)
    except ValueError:
        return "auth is not base64"
    user, colon, password = decoded.partition(b":")
    if not colon:
        return "auth does not decode to user:password"
    # containers/image strips NUL from a password before it uses it.
    if not user or not password.strip(b"\0"):
        return "auth has an empty user or password"
    return ""
