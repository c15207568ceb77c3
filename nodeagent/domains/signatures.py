"""The trust in images: signature policies, the location of signatures, and their keys."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from nodeagent.core.plan.domain import Domain
from nodeagent.core.plan.layers import by_name, is_leftover
from nodeagent.core.plan.policy import reload
from nodeagent.core.plan.sides import Sides
from nodeagent.core.validate import registries_d, signature_policy
from nodeagent.errors import Problem

RELOAD_CRIO: Final = (reload("crio.service"),)
POLICY: Final = "/etc/containers/policy.json"
# One for each namespace, in the same format.
POLICIES: Final = "/etc/crio/policies/"
LOCATIONS: Final = "/etc/containers/registries.d"
SUFFIX: Final = ".yaml"


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
        known = {name for name, _, _ in registries_d.twice(before)}
        for name, first, second in registries_d.twice(after):
            if name not in known:
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
    """Return the files that are read: of the directory itself, hidden ones included."""
    return {path: files[path] for path in by_name(files, [LOCATIONS], SUFFIX)}


DOMAIN: Final = SignaturesDomain(
    name="signatures",
    title="image signature policies",
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
        f"{LOCATIONS}/*{SUFFIX}": registries_d.check,
    },
    joined=(),
)
