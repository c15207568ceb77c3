# SPDX-License-Identifier: Apache-2.0
"""Static pods of the kubelet: etcd, and the programs of a control plane.

A changed manifest restarts its pod and nothing else, so neither a drain nor a reboot is needed. The directory is that
of the kubelet's own configuration; an update that changes it takes manifests for unlisted files.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from nodeagent.core.plan.change import HIDDEN, POD, Change, KeyChange
from nodeagent.core.plan.domain import ByContent, Domain
from nodeagent.core.plan.policy import NONE, UNLISTED, Verdict, restart_static_pod
from nodeagent.core.plan.sides import Sides
from nodeagent.core.plan.static_pods import (
    DEFAULT_DIRECTORY,
    MISSING,
    data_directory,
    differences,
    directory_problems,
    in_directory,
    is_etcd,
    kubeadm_writes,
    owned_manifests,
    owner_of,
)
from nodeagent.core.validate.quantity import parse_duration
from nodeagent.core.validate.static_pod import StaticPod, check, load
from nodeagent.domains.kubelet.document import KubeletConfig
from nodeagent.errors import Problem

KEPT: Final = "staticPodPath"
# Values of other keys may be secrets.
SHOWN: Final = ".image"

# Seconds: the default of fileCheckFrequency, and the longest one for which an update waits. Longer would be more than
# the deadline of its verification.
LISTING: Final = 20.0
MAX_LISTING: Final = 300.0


class StaticPodDomain(Domain):
    """The comparison is that of decoded manifests: comments and the order of keys restart nothing."""

    def reads(self, sides: Sides) -> Collection[str]:
        """A config may add the manifest of a pod that runs already."""
        return {f"{directory(files)}/" for files in (sides.before, sides.after)}

    def changes(self, sides: Sides) -> Sequence[KeyChange]:
        before, after = in_directory(sides.before, _directory(sides)), in_directory(sides.after, _directory(sides))
        changed = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
        return [key for path in changed for key in _keys(path, _pod(before.get(path)), _pod(after.get(path)))]

    def actions(self, change: Change, sides: Sides) -> Verdict:
        # The kubelet starts and ends pods on its own when its directory changes, so no plan can order these changes.
        manifests = in_directory({change.key: b""}, _directory(sides))
        verdict = super().actions(change, sides) if manifests else Verdict(UNLISTED, "")
        # The side that decides whether the file is written.
        wanted = sides.new if change.key in sides.new.files else sides.old
        sign = owned_manifests(wanted).get(change.key)
        return verdict if sign is None else Verdict((NONE,), f"an operator writes it ({sign}): only watched")

    def validate(self, sides: Sides, changed: Mapping[str, bytes]) -> Iterator[Problem]:
        where = directory(sides.after)
        ours = in_directory(changed)
        if where != DEFAULT_DIRECTORY:
            # Only the files of the host show where the manifests are.
            wanted = in_directory(sides.after, where)
            ours = {path: content for path, content in wanted.items() if sides.before.get(path) != content}
        for path, content in ours.items():
            yield from (Problem(path, message) for message in check(content))
            yield from (Problem(path, message) for message in _kept(_pod(sides.before.get(path)), _pod(content)))
        yield from directory_problems(in_directory(sides.after, where), list(ours))

    def warnings(self, sides: Sides) -> Iterator[Problem]:
        before, after = (in_directory(files, directory(files)) for files in (sides.before, sides.after))
        for path, content in after.items():
            if before.get(path) == content or path not in before:
                continue
            pods = [pod for pod in (_pod(before[path]), _pod(content)) if pod is not None]
            if any(map(kubeadm_writes, pods)) and not any(map(owner_of, pods)):
                yield Problem(path, "is written by kubeadm, too: kubeadm upgrade replaces it")


def directory(files: Mapping[str, bytes]) -> str:
    """Return the directory in which a kubelet with these files reads manifests."""
    return KubeletConfig(files).static_pods or DEFAULT_DIRECTORY


def listing(files: Mapping[str, bytes]) -> float:
    """Return the seconds between two full listings of a kubelet with these files, at most ``MAX_LISTING``."""
    interval = parse_duration(str(KubeletConfig(files).keys.get("fileCheckFrequency", "")))
    # To a kubelet, zero is the default.
    return min(interval, MAX_LISTING) if interval else LISTING


def _directory(sides: Sides) -> str:
    """Return the directory of both sides, "" if the sides differ."""
    if KEPT not in sides.kept:
        before, after = directory(sides.before), directory(sides.after)
        sides.kept[KEPT] = after if before == after else ""
    shared_directory: str = sides.kept[KEPT]
    return shared_directory


def _pod(content: bytes | None) -> StaticPod | None:
    return None if content is None else load(content)


def _kept(old: StaticPod | None, new: StaticPod | None) -> Iterator[str]:
    """Yield what a change of a manifest must not change."""
    if old is None or new is None:
        return
    if old.title != new.title:
        yield f"renames the pod {old.title} to {new.title}: remove the one and add the other in two updates"
    elif is_etcd(old) and is_etcd(new) and data_directory(old) != data_directory(new):
        yield "changes the data directory of etcd: the member would lose its log and its votes; remove and add it"


def _keys(path: str, old: StaticPod | None, new: StaticPod | None) -> Iterator[KeyChange]:
    pod = new or old
    if pod is None:
        # Neither side is a pod that the kubelet runs.
        return
    action = (restart_static_pod(pod.title, path),)
    if old is None or new is None:
        yield KeyChange(
            path, POD, _title(old), _title(new), action, "the pod is added" if new else "the pod is removed"
        )
        return
    for key, was, now in differences(old, new):
        yield KeyChange(path, key, _shown(key, was), _shown(key, now), action)


def _title(pod: StaticPod | None) -> str:
    return "" if pod is None else json.dumps(pod.title)


def _shown(key: str, value: object) -> str:
    if value is MISSING:
        return ""
    return json.dumps(value) if key.endswith(SHOWN) else HIDDEN


DOMAIN: Final = StaticPodDomain(
    name="static pods of the kubelet",
    files={
        DEFAULT_DIRECTORY: ByContent(
            "RestartStaticPod for each changed pod, also in another staticPodPath of the kubelet; None for a pod of an"
            " operator"
        ),
    },
    contents={f"{DEFAULT_DIRECTORY}/*": check},
    joined=(),
)
