# SPDX-License-Identifier: Apache-2.0
"""The kubelet: its configuration as it uses it, an action for each key, its own dry run, and its credential providers.

See docs/explanation/kubelet.md.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

from nodeagent.core.config.file_tree import expand
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.plan.change import HIDDEN, Change, KeyChange, shortened
from nodeagent.core.plan.domain import NODE, ByContent, Domain, Health, HttpHealth, UnitFailure, owns
from nodeagent.core.plan.layers import is_leftover
from nodeagent.core.plan.policy import DAEMON_RELOAD, NONE, UNLISTED, Verdict, restart
from nodeagent.core.plan.program import ProgramCheck
from nodeagent.core.plan.sides import HostView, Sides
from nodeagent.domains.kubelet.document import (
    CONFIG_DIRS,
    CONFIG_FILES,
    UNREADABLE,
    KubeletConfig,
    check_form,
    check_main,
    is_kubeconfig,
)
from nodeagent.domains.kubelet.dry_run import dry_runs
from nodeagent.domains.kubelet.keys import PER_CORE, REBOOTED, RESTARTED, ZERO, actions_of, secret
from nodeagent.domains.kubelet.limits import doubts_of, kept_back, paths_of, problems_of
from nodeagent.domains.kubelet.unit import KUBELET, UNIT_DIRS
from nodeagent.errors import Problem

# The defaults of the kubelet: it serves healthz on loopback, at this port.
HEALTHZ_PORT: Final = 10248
EVERYWHERE: Final = ("", "0.0.0.0", "::")  # noqa: S104 - an address to ask on loopback, not one to listen on
BY_KEY: Final = ByContent("By the keys that change: Restart kubelet.service at least, Drain and Reboot at most")
# Results of systemd for a program that ended on its own: it does the same after a boot.
ENDED: Final = ("exit-code", "protocol", "start-limit-hit", "success")
# Keys that decide what a Node keeps back from pods.
RESERVING: Final = ("systemReserved", "kubeReserved", "evictionHard", "reservedSystemCPUs")
# Directives of the unit that describe it.
DESCRIPTIVE: Final = ("[Unit] Description", "[Unit] Documentation")
# Keys that name a file which a kubelet reads once, when it starts, and which is of use to the kubelet only. Newer ones
# watch the certificate that they serve with; for others the restart is needed.
NAMING: Final = (
    "--bootstrap-kubeconfig",
    "--image-credential-provider-config",
    "tlsCertFile",
    "tlsPrivateKeyFile",
    "--kubeconfig",
)
NAMED: Final = "kubelet files"
# The drop-in of kubeadm reads one of them: the first in Debian packages, the second in RPMs.
ENVIRONMENT_FILES: Final = ("/etc/default/kubelet", "/etc/sysconfig/kubelet")


class KubeletDomain(Domain):
    def reads(self, sides: Sides) -> Collection[str]:
        paths = {*CONFIG_FILES, *(f"{path}/" for path in CONFIG_DIRS)}
        for directory in UNIT_DIRS:
            paths |= {f"{directory}/{KUBELET}", f"{directory}/{KUBELET}.d/"}
        for config in (KubeletConfig(sides.before), KubeletConfig(sides.after)):
            paths |= {config.config_file, *config.unit.environment_files, *(f"{path}/" for path in config.config_dirs)}
            paths |= {f"{config.static_pods}/", *paths_of(config)} - {"/"}
        return {path for path in paths if path.startswith("/")}

    def changes(self, sides: Sides) -> Sequence[KeyChange]:
        before, after = KubeletConfig(sides.before), KubeletConfig(sides.after)
        changed = _changed_sources(sides, before, after)
        key_changes = list(_enablement(sides))
        if not changed:
            return key_changes
        units = _unit_paths(sides)
        for key, was, now in _differences(before, after):
            actions, cause = actions_of(key, was, now, after.keys or before.keys)
            path = _document(key, changed, before, after)
            if path in units or path in ENVIRONMENT_FILES:
                actions = (DAEMON_RELOAD, *(action for action in actions if action != NONE))
            values = (_shown(key, was), _shown(key, now))
            key_changes.append(KeyChange(units.get(path, path), shortened(key), *values, actions, cause))
        return key_changes

    def actions(self, change: Change, sides: Sides) -> Verdict:
        verdict = super().actions(change, sides)
        if not verdict.keys and (named := self.named(change, sides)).actions != UNLISTED:
            return named
        # systemd reads a unit again even if only its comments or descriptions changed.
        return replace(verdict, actions=(DAEMON_RELOAD,)) if change.domain == "unit" and not verdict.keys else verdict

    def named(self, change: Change, sides: Sides) -> Verdict:
        """Decide about a change of a file without an entry: a restart, if the configuration of the kubelet names it."""
        if NAMED not in sides.kept:
            configs = (KubeletConfig(sides.before), KubeletConfig(sides.after))
            key_of_path = {config.keys[key]: key for config in configs for key in NAMING if key in config.keys}
            # kubeadm has the kubeconfig where OpenShift has the configuration.
            files = [pair for side in (sides.before, sides.after) for pair in side.items() if pair[0] in CONFIG_FILES]
            places = [path for path, content in files if is_kubeconfig(content)]
            sides.kept[NAMED] = dict.fromkeys(places, NAMING[-1]) | key_of_path
        key = sides.kept[NAMED].get(change.key)
        return Verdict(UNLISTED, "") if key is None else Verdict(RESTARTED, f"{key} of the kubelet names it")

    def validate(self, sides: Sides, changed: Mapping[str, bytes]) -> Iterator[Problem]:
        yield from super().validate(sides, changed)
        before, after = KubeletConfig(sides.before), KubeletConfig(sides.after)
        if not _changed_sources(sides, before, after):
            return
        # What was wrong before is no fault of an update that may be about another key.
        earlier = {*problems_of(before)}
        for key, problem in problems_of(after):
            if (key, problem) not in earlier:
                yield Problem(after.source_of(key), f"{key} {problem}")
        path = before.static_pods
        if path and path != after.static_pods and any(file.startswith(f"{path}/") for file in sides.before):
            text = f"staticPodPath leaves {path}, which has static pods: the kubelet would end all of them"
            yield Problem(after.source_of("staticPodPath"), text)

    def warnings(self, sides: Sides) -> Iterator[Problem]:
        before, after = KubeletConfig(sides.before), KubeletConfig(sides.after)
        for path in after.dropins:
            if is_leftover(path):
                yield Problem(
                    path, "is read by the kubelet, which reads every file of the directory that ends in .conf"
                )
        earlier = {*doubts_of(before)}
        for key, doubt in doubts_of(after):
            if (key, doubt) not in earlier:
                yield Problem(after.source_of(key), f"{key} {doubt}")

    def programs(self, sides: Sides) -> Sequence[ProgramCheck]:
        if sides.old.os_image_url != sides.new.os_image_url:
            # The kubelet of the new image may know keys and feature gates that the installed one rejects.
            return []
        before, after = KubeletConfig(sides.before), KubeletConfig(sides.after)
        return list(dry_runs(before, after)) if _changed_sources(sides, before, after) else []

    def verify(self, unit: str, host: HostView) -> Sequence[Health]:
        """The port of the configuration that the host has now: another one is among the keys that may change."""
        if unit != KUBELET:
            return ()
        keys = KubeletConfig(host.files).keys
        port, address = keys.get("healthzPort", HEALTHZ_PORT), str(keys.get("healthzBindAddress", ""))
        if not isinstance(port, int) or port <= 0:
            return ()
        # 0.0.0.0 and :: are all interfaces, of which loopback is one. An IPv6 address needs brackets in a URL.
        name = "127.0.0.1" if address in EVERYWHERE else f"[{address}]" if ":" in address else address
        return (HttpHealth(KUBELET, f"http://{name}:{port}/healthz"),)

    def outdated(self, keys: Sequence[KeyChange], *, reverted: bool) -> Mapping[str, str]:
        """Return capacities of the Node, such as ``pods``, that a kubelet without the changes of ``keys`` reports; with
        ``reverted``, those of a kubelet that still has them."""
        ours = {key.key: key for key in keys if self._is_ours(key)}
        key = ours.get("maxPods")
        # With podsPerCore, the capacity may rightly stay as it is.
        if key is None or key.why == PER_CORE or "podsPerCore" in ours:
            return {}
        # The capacity of the side that the host must have left.
        values = [str(ZERO["maxPods"]) if value in ("", "0") else value for value in (key.before, key.after)]
        return {"pods": values[reverted]} if values[0] != values[1] else {}

    def kept_back(self, keys: Sequence[KeyChange], host: HostView) -> Mapping[str, Decimal]:
        """Return the amounts of resources that the Node keeps back from pods with the files that the host has now, if
        one of ``keys`` changes that. A resource whose amount is not certain is left out."""
        if not any(key.key.partition(".")[0] in RESERVING and self._is_ours(key) for key in keys):
            return {}
        now = KubeletConfig(host.files)
        amounts = {resource: kept_back(now, resource) for resource in ("cpu", "memory", "ephemeral-storage")}
        return {resource: amount for resource, amount in amounts.items() if amount is not None}

    def _is_ours(self, key: KeyChange) -> bool:
        return key.document == KUBELET or any(
            key.document == path or owns(f"{path}/", key.document) for path in self.files
        )

    def curable(self, failure: UnitFailure) -> bool:
        # A kubelet reads the same files after a boot, with which it ended, or with which the Node is not ready.
        ended = failure.unit == KUBELET and failure.result in ENDED
        return not ((ended or failure.unit == NODE) and any(map(self._is_ours, failure.keys)))


def _changed_sources(sides: Sides, before: KubeletConfig, after: KubeletConfig) -> list[str]:
    """Return the sources that the update changes, from the weakest to the strongest."""
    paths = dict.fromkeys([*before.sources, *after.sources])
    order = {path: place for place, path in enumerate(after.sources)}
    changed = [path for path in paths if sides.before.get(path) != sides.after.get(path)]
    return sorted(changed, key=lambda path: order.get(path, -1))


def _differences(before: KubeletConfig, after: KubeletConfig) -> Iterator[tuple[str, Any, Any]]:
    for was, now in ((before.keys, after.keys), (_rest(before), _rest(after))):
        for key in sorted({*was, *now}):
            if was.get(key) != now.get(key):
                yield key, was.get(key), now.get(key)


def _rest(config: KubeletConfig) -> dict[str, Any]:
    """Return what else the unit says: its other directives, and its environment."""
    directives = {name: list(values) for name, values in config.unit.directives.items() if name not in DESCRIPTIVE}
    return directives | {f"environment {name}": value for name, value in config.unit.environment.items()}


def _document(key: str, changed: Sequence[str], before: KubeletConfig, after: KubeletConfig) -> str:
    """Return the strongest changed source that says something about ``key``, else the strongest of all."""
    documents = {*before.documents, *after.documents}
    units = [path for path in changed if path not in documents]
    from_unit = key.startswith(("--", "[", "environment ")) or not any(
        config.sets(path, key) for config in (before, after) for path in changed if path in documents
    )
    if from_unit and units:
        return units[-1]
    setting = [path for path in changed if path in documents and (before.sets(path, key) or after.sets(path, key))]
    return (setting or list(changed))[-1]


def _unit_paths(sides: Sides) -> dict[str, str]:
    """Return the paths of the unit to the name under which a config changes them."""
    paths: dict[str, str] = {}
    for config in (sides.old, sides.new):
        # A plan lists what changes in a unit under its name, and not under the paths of its file and drop-ins.
        if (unit := config.units.get(KUBELET)) is not None:
            paths |= dict.fromkeys(expand(MachineConfig("", units={KUBELET: unit})), KUBELET)
    return paths


def _enablement(sides: Sides) -> Iterator[KeyChange]:
    was, now = sides.old.units.get(KUBELET), sides.new.units.get(KUBELET)
    for name in ("enabled", "mask"):
        before, after = getattr(was, name, None), getattr(now, name, None)
        if before != after:
            yield KeyChange(KUBELET, name, _shown(name, before), _shown(name, after), REBOOTED)


def _shown(key: str, value: Any) -> str:
    if value is None:
        return ""
    if secret(key) or key == UNREADABLE:
        return HIDDEN
    return shortened(json.dumps(value, ensure_ascii=False, sort_keys=True))


DOMAIN: Final = KubeletDomain(
    name="kubelet and its credential providers",
    files={
        **dict.fromkeys((*CONFIG_FILES, *CONFIG_DIRS, *ENVIRONMENT_FILES), BY_KEY),
        "/etc/kubernetes/credential-providers": (restart(KUBELET),),
        f"/etc/systemd/system/{KUBELET}.d/40-kubelet-crio-image-credential-provider.conf": (
            DAEMON_RELOAD,
            *RESTARTED,
        ),
    },
    units={KUBELET: BY_KEY},
    contents={
        **dict.fromkeys(CONFIG_FILES, check_main),
        **{f"{path}/*.conf": check_form for path in CONFIG_DIRS},
    },
    health=(HttpHealth(KUBELET, f"http://127.0.0.1:{HEALTHZ_PORT}/healthz"),),
    joined=(KUBELET,),
)
