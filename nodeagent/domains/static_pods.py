"""Static pods of the kubelet: etcd, and the programs of a control plane.

A changed manifest restarts its pod and nothing else, so neither a drain nor a reboot is needed. The kubelet of a host
may read another directory than the one here; a change of a manifest is unlisted then.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from nodeagent.core.plan.change import Change, KeyChange
from nodeagent.core.plan.domain import ByContent, Domain, verdict_of
from nodeagent.core.plan.policy import UNLISTED, Verdict, restart_static_pod
from nodeagent.core.plan.sides import Sides
from nodeagent.core.plan.static_pods import (
    DEFAULT_DIRECTORY,
    KUBELET_CONFIGS,
    MISSING,
    data_directory,
    differences,
    directory_problems,
    in_directory,
    is_etcd,
    static_pod_path,
)
from nodeagent.core.validate.static_pod import StaticPod, check, load
from nodeagent.errors import Problem

__all__ = ["DOMAIN"]

NOT_SHOWN: Final = "(not shown)"
# Values of other keys may be secrets.
SHOWN: Final = ".image"


class StaticPodDomain(Domain):
    """The comparison is that of decoded manifests: comments and the order of keys restart nothing."""

    def reads(self, _sides: Sides) -> Collection[str]:
        return KUBELET_CONFIGS

    def changes(self, sides: Sides) -> Sequence[KeyChange]:
        before, after = in_directory(sides.before), in_directory(sides.after)
        changed = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
        return [key for path in changed for key in _keys(path, _pod(before.get(path)), _pod(after.get(path)))]

    def actions(self, change: Change, sides: Sides) -> Verdict:
        known = change.key in {*in_directory(sides.before), *in_directory(sides.after)}
        if not known or any(_directory(side) != DEFAULT_DIRECTORY for side in (sides.before, sides.after)):
            return Verdict(UNLISTED, "")
        return verdict_of([key for key in self.changes(sides) if key.document == change.key])

    def validate(self, sides: Sides, changed: Mapping[str, bytes]) -> Iterator[Problem]:
        ours = in_directory(changed)
        for path, content in ours.items():
            yield from (Problem(path, message) for message in check(content))
            yield from (Problem(path, message) for message in _kept(_pod(sides.before.get(path)), _pod(content)))
        yield from directory_problems(in_directory(sides.after), list(ours))


def _directory(side: Mapping[str, bytes]) -> str:
    found = (static_pod_path(side[path]) for path in KUBELET_CONFIGS if path in side)
    return next(filter(None, found), DEFAULT_DIRECTORY)


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
            path, "pod", _title(old), _title(new), action, "the pod is added" if new else "the pod is removed"
        )
        return
    for key, was, now in differences(old, new):
        yield KeyChange(path, key, _shown(key, was), _shown(key, now), action)


def _title(pod: StaticPod | None) -> str:
    return "" if pod is None else json.dumps(pod.title)


def _shown(key: str, value: object) -> str:
    if value is MISSING:
        return ""
    return json.dumps(value) if key.endswith(SHOWN) else NOT_SHOWN


DOMAIN: Final = StaticPodDomain(
    name="static-pods",
    title="static pods of the kubelet",
    files={
        DEFAULT_DIRECTORY: ByContent(
            "RestartStaticPod for each changed pod; unlisted, if the kubelet reads another directory"
        ),
    },
    contents={f"{DEFAULT_DIRECTORY}/*": check},
)
