# SPDX-License-Identifier: Apache-2.0
"""Read the facts of `nodeagent selfcheck` side by side, each within a deadline, and judge them.

A reader that fails makes its own checks fail, and no other. Nothing is changed on the host or on a server.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar

import nodeagent
from nodeagent.cli._client import Client
from nodeagent.cli._offline import Stored, stored_note
from nodeagent.cli._render import counted
from nodeagent.core.coordination.kube_objects import Review
from nodeagent.core.self_check import NotRead, ReachFacts, SelfCheck, failed, ok, reach_check, unread
from nodeagent.errors import AgentError, InvalidInput, Unreachable, full_text
from nodeagent.features.selfcheck.decide.bus import NameFacts, UnitFacts, bus_checks, unit_checks
from nodeagent.features.selfcheck.decide.files import (
    DIRECTORIES,
    LABELLED,
    FileFacts,
    catalog_check,
    domain_check,
    file_checks,
    label_check,
)
from nodeagent.features.selfcheck.decide.os_fields import OsFacts, os_check
from nodeagent.features.selfcheck.decide.reach import denied, registry_of
from nodeagent.features.selfcheck.decide.versions import RunningFacts, version_checks
from nodeagent.features.selfcheck.facts import bus as bus_facts
from nodeagent.features.selfcheck.facts import files, unit, versions
from nodeagent.features.selfcheck.facts.os_fields import read_os_fields, read_os_service
from nodeagent.features.selfcheck.facts.servers import reach_registry
from nodeagent.host.clock import SystemClock
from nodeagent.host.dbus.client import Bus
from nodeagent.host.proc import replaced_file_of
from nodeagent.installed import doors
from nodeagent.kube.client import KubeClient
from nodeagent.kube.credentials import ClusterAccess
from nodeagent.kube.decode import decoded
from nodeagent.reasons import hint
from nodeagent.report.views.registry import message_ids
from nodeagent.settings.consistency import check_consistency
from nodeagent.settings.load import load
from nodeagent.settings.schema import Settings
from nodeagent.update.ports.store import SERVED_BY

# Seconds for each reader. They run side by side in three rounds, so the command takes at most three times as long.
DEADLINE: Final = 20.0
# Seconds to connect to the bus of a host without spare processor time.
PATIENCE: Final = 10.0
NO_SYSTEMD: Final = NotRead("systemd does not run here, as in the build of an image", "run it on the booted host")
NOT_CONFIGURED: Final = NotRead("not configured")
AS_ROOT: Final = "run it as root"
# The names of the checks of servers begin with it.
REACH: Final = "reach."
REACH_CHECKS: Final = ("reach.api-server", "reach.lease", "reach.registry")
# What a lease needs (packaging/kubernetes/nodeagent.yaml).
VERBS: Final = ("get", "create", "patch")
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
MESSAGE_IDS: Final = tuple(message_ids())

Fact = TypeVar("Fact")


async def survey() -> Sequence[SelfCheck]:
    """Return the results in the order of the documentation."""
    settings, checked = await asyncio.to_thread(_settings)
    chosen = await asyncio.to_thread(_chosen)
    booted = await asyncio.to_thread(unit.is_booted)
    # A missing bus is a finding, so the command does not wait for one.
    async with Bus(connect_for=0.0, patience=PATIENCE) as bus:
        owner: Awaitable[NameFacts | NotRead] = bus_facts.read_name(bus) if booted else _known(NO_SYSTEMD)
        serves: Awaitable[OsFacts | NotRead] = read_os_fields(bus, chosen) if booted else _known(NO_SYSTEMD)
        own_unit, name, polkit, systemd, os_fields = await asyncio.gather(
            # Without systemd, as in the build of an image, only the unit files can be checked.
            _bounded(unit.read_unit(bus) if booted else asyncio.to_thread(unit.read_unit_files)),
            _bounded(owner),
            _bounded(bus_facts.read_polkit(bus) if booted else _known(NO_SYSTEMD)),
            _bounded(unit.read_systemd_version(bus) if booted else _known("")),
            _bounded(serves),
        )
        version = systemd if isinstance(systemd, str) else ""
        # The second round needs the version of systemd and the owner of the bus name from the first one.
        policy, paths, catalog, labels, installed, running = await asyncio.gather(
            _bounded(asyncio.to_thread(bus_facts.is_bus_policy)),
            _bounded(asyncio.to_thread(_files, settings.state_dir)),
            _bounded(files.read_catalog(MESSAGE_IDS)),
            _bounded(asyncio.to_thread(files.read_labels, (*LABELLED, settings.state_dir))),
            _bounded(asyncio.to_thread(versions.read_versions, version)),
            _bounded(asyncio.to_thread(_running, name)),
        )
        # The SELinux domain is read from the process of the daemon.
        pid = own_unit.pid if isinstance(own_unit, UnitFacts) else 0
        domain = await _bounded(asyncio.to_thread(files.read_domain, pid))
        # The servers come last, because a name server that does not answer may take the whole deadline.
        servers, added = await asyncio.gather(_reach(bus, settings, chosen, booted=booted), _added(settings))
    return [
        checked,
        *(check for check in added if not check.id.startswith(REACH)),
        *unit_checks(own_unit),
        *bus_checks(policy, name, polkit, own_unit, root=os.geteuid() == 0),
        *file_checks(paths, booted=booted, running=isinstance(own_unit, UnitFacts) and own_unit.running),
        label_check(labels),
        domain_check(domain, labels),
        catalog_check(catalog, MESSAGE_IDS),
        os_check(os_fields),
        *version_checks(nodeagent.__version__, installed, running),
        *servers[:-1],
        *(check for check in added if check.id.startswith(REACH)),
        servers[-1],
    ]


async def _added(settings: Settings) -> Sequence[SelfCheck]:
    """Return the results of the checks of the features."""
    checks = [check for door in doors() for check in door.self_checks]
    results = await asyncio.gather(*(_bounded(check.read(settings)) for check in checks))
    return [
        unread(check.name, result) if isinstance(result, NotRead) else result
        for check, result in zip(checks, results, strict=True)
    ]


async def _bounded(reading: Awaitable[Fact]) -> Fact | NotRead:
    """Return the fact, or why it was not read."""
    try:
        async with asyncio.timeout(DEADLINE):
            return await reading
    except TimeoutError:
        return NotRead(f"no answer within {DEADLINE:.0f} s", "run it again; the host may be busy", fault=True)
    except AgentError as error:
        return NotRead(error.message, error.hint or hint(error.reason), fault=True)
    except OSError as error:
        return NotRead(error.strerror or str(error), "check the file system", fault=True)


async def _known(fact: Fact) -> Fact:
    return fact


def _settings() -> tuple[Settings, SelfCheck]:
    """Return the settings of the host, or the defaults beside a check that failed."""
    try:
        loaded = load()
        check_consistency(loaded.settings, loaded.origins)
    except InvalidInput as error:
        return Settings(), failed("settings", full_text(error, 1), "nodeagent settings check")
    origin = f"from {counted(len(loaded.files), 'file')}" if loaded.files else "and none is set: the defaults apply"
    return loaded.settings, ok("settings", f"valid, {origin}")


def _chosen() -> str | None:
    """Return the feature that has staged an OS on this host, "" for none; None without access to the store."""
    try:
        return stored_note(SERVED_BY)
    except AgentError:
        return None


def _files(state_dir: str) -> FileFacts:
    store = f"{state_dir}/state.db"
    return FileFacts(
        files.read_manifest(),
        {path: files.read_path(path) for path in DIRECTORIES},
        (state_dir, files.read_path(state_dir)),
        (store, files.read_path(store)),
    )


def _running(name: NameFacts | NotRead) -> RunningFacts | NotRead:
    if isinstance(name, NotRead):
        return NotRead(name.why, name.remedy)
    if not name.version:
        return NotRead("the daemon does not run", "systemctl start nodeagent")
    return RunningFacts(name.version, replaced_file_of(name.pid, versions.PACKAGE))


async def _reach(bus: Bus, settings: Settings, chosen: str | None, *, booted: bool) -> Sequence[SelfCheck]:
    """Return whether the servers of the base answer, the registry last."""
    cluster, registry = await asyncio.gather(
        _cluster(settings),
        _bounded(_registry(bus, chosen, booted=booted)),
    )
    results = zip(REACH_CHECKS, (*cluster, registry), strict=True)
    return [reach_check(name, facts) for name, facts in results]


async def _cluster(settings: Settings) -> tuple[ReachFacts | NotRead, ReachFacts | NotRead]:
    """Return whether the API server answers, and whether it allows the lease."""
    about, name = settings.cluster, settings.node_name
    if not about.configured:
        return NOT_CONFIGURED, NOT_CONFIGURED
    if not os.access(about.kubeconfig or about.service_account, os.R_OK) and os.geteuid() != 0:
        hidden = NotRead("the credentials of the agent are for root", AS_ROOT)
        return hidden, hidden
    # The library needs the keys of the kubeconfig as files, which must not replace those of the daemon.
    with TemporaryDirectory(prefix="nodeagent-selfcheck-", dir=os.environ.get("XDG_RUNTIME_DIR")) as private:
        access = ClusterAccess(about.kubeconfig, private=private, service_account=Path(about.service_account))
        # A reader makes several requests within its deadline.
        async with KubeClient(access, SystemClock(), timeout=DEADLINE / 4, patient=False) as client:
            server = await _bounded(reach_api_server(client, name))
            if isinstance(server, NotRead):
                return server, NotRead("the API server does not answer", "see reach.api-server")
            return server, await _bounded(reach_lease(client, name, about.lease_namespace))


async def reach_api_server(client: KubeClient, node: str) -> ReachFacts:
    """Read the Node: that needs the address, the credentials, the rights and the name."""
    target = f"Node {node}"
    try:
        await client.node(node)
    except AgentError as error:
        return ReachFacts(target, error.message, error.hint or hint(error.reason))
    return ReachFacts(target)


async def reach_lease(client: KubeClient, node: str, namespace: str) -> ReachFacts:
    """Request the decision about each verb. Each authenticated client may, and no lease has to exist."""
    name = f"node-{node}".lower()
    target = f"lease {namespace}/{name}"
    allowed: dict[str, bool] = {}
    for verb in VERBS:
        attributes = {"namespace": namespace, "verb": verb, "group": "coordination.k8s.io", "resource": "leases"}
        # A rule for a single name does not apply to creations.
        attributes |= {} if verb == "create" else {"name": name}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        try:
            answer = decoded(Review, await client.create(_REVIEWS, review), f"POST {_REVIEWS}")
        except AgentError as error:
            return ReachFacts(target, error.message, error.hint or hint(error.reason))
        allowed[verb] = bool((answer.get("status") or {}).get("allowed"))
    return ReachFacts(target, denied(VERBS, allowed), "give the agent its rights: packaging/kubernetes/nodeagent.yaml")


async def _registry(bus: Bus, chosen: str | None, *, booted: bool) -> ReachFacts | NotRead:
    """Return whether the registry of the desired OS image answers."""
    try:
        document = await Client(bus).config("desired", "", secrets=False)
    except AgentError as error:
        # Without the daemon, its store and the file of the desired config are for root.
        if os.geteuid() != 0:
            return NotRead("the desired config is for root while the daemon does not run", AS_ROOT)
        try:
            down = error if isinstance(error, Unreachable) else Unreachable(error.message, reason=error.reason)
            document = await asyncio.to_thread(Stored(down).config, "desired", "", secrets=False)
        except (AgentError, OSError):
            return NotRead("there is no desired config")
    registry = registry_of(_image(document))
    if not registry:
        return NotRead("the desired config names no image of a registry")
    if booted and await _pulls_by_proxy(bus, chosen):
        return NotRead(f"a proxy is configured, which OS updates use for {registry}")
    return await reach_registry(registry)


async def _pulls_by_proxy(bus: Bus, chosen: str | None) -> bool:
    updater = (await read_os_service(bus, chosen)).unit
    return bool(updater) and await unit.proxies(bus, updater)


def _image(document: Any) -> str:
    spec = document["config"].get("spec") if isinstance(document.get("config"), dict) else None
    return str(spec.get("osImageURL") or "") if isinstance(spec, dict) else ""
