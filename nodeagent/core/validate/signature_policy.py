# SPDX-License-Identifier: Apache-2.0
"""Check policy.json, the image signature policy: containers-policy.json(5).

Its readers reject the whole file for one unknown or repeated key, and then no image can be pulled. So this check is as
strict as they are. The key files that it names are not read, because they can come with the same config; ``key_paths``
has them.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Final

from nodeagent.core.config.fields import Fields
from nodeagent.core.config.problems import Problems
from nodeagent.core.config.text.document import load_strict

# containers/image parses all of these, and implements the first one only: the others reject every image.
KEY_TYPES: Final = ("GPGKeys", "signedByGPGKeys", "X509Certificates", "signedByX509CAs")
REQUIREMENTS: Final = ("insecureAcceptAnything", "reject", "signedBy", "signedBaseLayer", "sigstoreSigned")
SIGNED_BY_KEYS: Final = ("keyPath", "keyPaths", "keyData")
SIGSTORE_KEYS: Final = ("keyPath", "keyPaths", "keyData", "keyDatas", "fulcio", "pki")
REKOR_KEYS: Final = ("rekorPublicKeyPath", "rekorPublicKeyPaths", "rekorPublicKeyData", "rekorPublicKeyDatas")
PLAIN_MATCHES: Final = ("matchExact", "matchRepoDigestOrExact", "matchRepository")
MATCHES_WITH: Final = {
    "exactReference": ("dockerReference",),
    "exactRepository": ("dockerRepository",),
    "remapIdentity": ("prefix", "signedPrefix"),
}


def check(content: bytes) -> Iterator[str]:
    data, problems = load_strict(content)
    yield from problems
    if problems:
        return
    policy_problems = Problems()
    root = Fields(data, "", policy_problems)
    # The key is mandatory, even if each transport has requirements of its own.
    _requirements(root, "default")
    transports = root.raw("transports")
    if isinstance(transports, dict):
        for name, scopes in transports.items():
            fields = Fields(scopes, f"transports.{name}", policy_problems)
            # The form of a scope is up to its transport.
            for scope in scopes if isinstance(scopes, dict) else ():
                _requirements(fields, scope)
    else:
        # Reading it as an object reports a value of another type.
        root.child("transports")
    root.finish()
    yield from (f"{p.path}: {p.message}" if p.path else p.message for p in policy_problems.listed())


def key_paths(content: bytes) -> Iterator[str]:
    """Yield the absolute paths of keys and certificates that a policy names; none for an unreadable policy."""
    yield from _paths(load_strict(content)[0], "")


def _paths(value: object, name: str) -> Iterator[str]:
    # The names with this word are keyPath, rekorPublicKeyPaths, caRootsPath and the like. The depth of the data is
    # bounded.
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _paths(item, key)
    elif isinstance(value, list):
        for item in value:
            yield from _paths(item, name)
    elif isinstance(value, str) and "Path" in name and value.startswith("/"):
        yield value


def _requirements(fields: Fields, key: str) -> None:
    if fields.raw(key) in (None, []):
        fields.bad(key, "must have at least one requirement")
    for item in fields.children(key):
        _requirement(item)
        item.finish()


def _requirement(item: Fields) -> None:
    kind = item.text("type")
    match kind:
        case "insecureAcceptAnything" | "reject":
            pass
        case "signedBy":
            if item.text("keyType") not in KEY_TYPES:
                item.bad("keyType", f"must be one of {', '.join(KEY_TYPES)}")
            _one_of(item, SIGNED_BY_KEYS)
            _identity(item, "signedIdentity", required=False)
        case "signedBaseLayer":
            _identity(item, "baseLayerIdentity", required=True)
        case "sigstoreSigned":
            _sigstore(item)
            _identity(item, "signedIdentity", required=False)
        case _:
            item.bad("type", f"must be one of {', '.join(REQUIREMENTS)}")


def _sigstore(item: Fields) -> None:
    source = _one_of(item, SIGSTORE_KEYS)
    rekor = [key for key in REKOR_KEYS if _source(item, key)]
    if len(rekor) > 1:
        item.problems.add(item.path, f"at most one of {', '.join(REKOR_KEYS)} can be set")
    if source == "fulcio":
        fulcio = item.child("fulcio")
        _one_of(fulcio, ("caPath", "caData"))
        for key in ("oidcIssuer", "subjectEmail"):
            if not fulcio.text(key):
                fulcio.bad(key, "is required")
        fulcio.finish()
        # A certificate of Fulcio lives for minutes, so only an entry of Rekor proves that the signature was made in
        # that time.
        if not rekor:
            item.problems.add(item.path, f"fulcio needs one of {', '.join(REKOR_KEYS)}")
    if source == "pki":
        pki = item.child("pki")
        _one_of(pki, ("caRootsPath", "caRootsData"))
        if _source(pki, "caIntermediatesPath") and _source(pki, "caIntermediatesData"):
            pki.problems.add(pki.path, "caIntermediatesPath and caIntermediatesData cannot both be set")
        if not [key for key in ("subjectEmail", "subjectHostname") if pki.text(key)]:
            pki.problems.add(pki.path, "one of subjectEmail, subjectHostname is required")
        pki.finish()
        if rekor:
            item.problems.add(item.path, "rekor keys cannot be combined with pki")


def _one_of(item: Fields, keys: Iterable[str]) -> str:
    """Return the only key of ``keys`` that is set. Report a problem if none or several are set."""
    set_keys = [key for key in keys if _source(item, key)]
    if len(set_keys) != 1:
        item.problems.add(item.path, f"exactly one of {', '.join(keys)} must be set")
        return ""
    return set_keys[0]


def _source(item: Fields, key: str) -> bool:
    """Return whether ``key`` is set. Check its form by its name: paths are text, data is base64, a plural is a list."""
    if item.raw(key) is None:
        return False
    if key.endswith("s"):
        values = item.texts(key)
        if not item.items(key):
            item.bad(key, "must not be empty")
    elif key in ("fulcio", "pki"):
        return True
    else:
        values = [text for text in [item.text(key)] if text is not None]
    if "Data" in key and not all(map(_is_base64, values)):
        item.bad(key, "must be base64")
    if "Path" in key and not all(value.startswith("/") for value in values):
        item.bad(key, "must be an absolute path")
    return True


def _is_base64(text: str) -> bool:
    try:
        # Empty data are no key.
        return bool(base64.b64decode(text, validate=True))
    except ValueError:
        return False


def _identity(item: Fields, key: str, *, required: bool) -> None:
    if item.raw(key) is None:
        if required:
            item.bad(key, "is required")
        return
    identity = item.child(key)
    kind = identity.text("type")
    if kind in MATCHES_WITH:
        for name in MATCHES_WITH[kind]:
            if not identity.text(name):
                identity.bad(name, "is required")
    elif kind not in PLAIN_MATCHES:
        identity.bad("type", f"must be one of {', '.join((*PLAIN_MATCHES, *MATCHES_WITH))}")
    identity.finish()
