# SPDX-License-Identifier: Apache-2.0
"""The trust in images: signature policies, the location of signatures, and their keys."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from nodeagent.core.config.problems import kind_of, shown
from nodeagent.core.config.text import document
from nodeagent.core.plan.domain import Domain
from nodeagent.core.plan.layers import by_name, is_leftover
from nodeagent.core.plan.policy import reload
from nodeagent.core.plan.sides import Sides
from nodeagent.core.validate import signature_policy
from nodeagent.errors import InvalidInput, Problem

RELOAD_CRIO: Final = (reload("crio.service"),)
POLICY: Final = "/etc/containers/policy.json"
# One for each namespace, in the same format.
POLICIES: Final = "/etc/crio/policies/"
LOCATIONS: Final = "/etc/containers/registries.d"
SUFFIX: Final = ".yaml"
# Keys of a file of LOCATIONS.
DEFAULT: Final = "default-docker"
NAMESPACES: Final = "docker"
TEXTS: Final = ("lookaside", "lookaside-staging", "sigstore", "sigstore-staging")
SWITCH: Final = "use-sigstore-attachments"


class SignaturesDomain(Domain):
    """The files of a config together with those of the host: keys that a policy names, and namespaces."""

    def reads(self, sides: Sides) -> Collection[str]:
        return {f"{LOCATIONS}/", *_keys(sides.before), *_keys(sides.after)}

    def validate(self, sides: Sides, changed: Mapping[str, bytes]) -> Iterator[Problem]:
        yield from super().validate(sides, changed)
        before, after = _locations(sides.before), _locations(sides.after)
        if before == after:
            return
        # What two files defined before is no fault of an update.
        defined_twice = {name for name, _, _ in twice(before)}
        for name, first, second in twice(after):
            if name not in defined_twice:
                path, other = (second, first) if before.get(second) != after.get(second) else (first, second)
                yield Problem(path, f"defines {name}, as {other} does: then no image can be pulled")

    def warnings(self, sides: Sides) -> Iterator[Problem]:
        for path in _locations(sides.after):
            if is_leftover(path):
                yield Problem(path, "is read by CRI-O, which reads every file of the directory that ends in .yaml")
        if not sides.host.files:
            # Without the files of the host, none of them is missing.
            return
        was, now = _keys(sides.before), _keys(sides.after)
        for path, policy in now.items():
            if path not in sides.after and (path not in was or path in sides.before):
                yield Problem(policy, f"names a key that neither this host nor the config has: {path}")


def _keys(files: Mapping[str, bytes]) -> Mapping[str, str]:
    """Return the paths of keys, and the policy that names each."""
    policies = [path for path in files if path == POLICY or path.startswith(POLICIES)]
    return {key: path for path in policies for key in signature_policy.key_paths(files[path])}


def _locations(files: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """Return the files that are read: those of the directory itself, including hidden files."""
    return {path: files[path] for path in by_name(files, [LOCATIONS], SUFFIX)}


def check_locations(content: bytes) -> Iterator[str]:
    """Check a file of registries.d, which names the places of image signatures: containers-registries.d(5).

    The readers take all files together whose names end in ``.yaml``. One that cannot be parsed, or a namespace that two
    files define, fails each access to a registry. Unknown keys are accepted, as by the readers.
    """
    try:
        data = _load(content)
    except InvalidInput as error:
        yield from (f"{p.path}: {p.message}" for p in error.problems) if error.problems else (error.message,)
        return
    if not isinstance(data, dict):
        yield f"must be a mapping, is {kind_of(data)}"
        return
    yield from _namespace(DEFAULT, data.get(DEFAULT))
    namespaces = data.get(NAMESPACES)
    if isinstance(namespaces, dict):
        for name, value in namespaces.items():
            yield from _namespace(f"{NAMESPACES}.{shown(name)}", value)
    elif namespaces is not None:
        yield f"{NAMESPACES} must be a mapping, is {kind_of(namespaces)}"


def twice(files: Mapping[str, bytes]) -> Iterator[tuple[str, str, str]]:
    """Yield the names that two files define, and both paths. Files that cannot be read define nothing."""
    path_of: dict[str, str] = {}
    for path in sorted(files):
        for name in _names(files[path]):
            if (other := path_of.setdefault(name, path)) != path:
                yield name, other, path


def _names(content: bytes) -> Iterator[str]:
    try:
        data = _load(content)
    except InvalidInput:
        return
    if isinstance(data, dict):
        if data.get(DEFAULT) is not None:
            yield DEFAULT
        namespaces = data.get(NAMESPACES)
        yield from (f"{NAMESPACES}.{shown(name)}" for name in namespaces) if isinstance(namespaces, dict) else ()


def _load(content: bytes) -> object:
    lines = (line.strip() for line in content.splitlines())
    # The file of a distribution may have nothing but comments, which is no document.
    return document.load(content, "the file") if any(line and not line.startswith(b"#") for line in lines) else {}


def _namespace(where: str, value: object) -> Iterator[str]:
    if value is None:
        return
    if not isinstance(value, dict):
        yield f"{where} must be a mapping, is {kind_of(value)}"
        return
    for key in TEXTS:
        # The readers take numbers for text.
        if isinstance(value.get(key), dict | list):
            yield f"{where}.{key} must be a string"
    if not isinstance(value.get(SWITCH), bool | None):
        yield f"{where}.{SWITCH} must be true or false"


DOMAIN: Final = SignaturesDomain(
    name="image signature policies",
    files={
        # The controller writes keys to this directory that may change without a reboot.
        "/etc/machine-config-daemon/no-reboot/containers-gpg.pub": RELOAD_CRIO,
        POLICY: RELOAD_CRIO,
        LOCATIONS: RELOAD_CRIO,
        POLICIES.rstrip("/"): RELOAD_CRIO,
    },
    contents={
        POLICY: signature_policy.check,
        POLICIES: signature_policy.check,
        f"{LOCATIONS}/*{SUFFIX}": check_locations,
    },
    joined=(),
)
