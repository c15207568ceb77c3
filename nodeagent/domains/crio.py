# SPDX-License-Identifier: Apache-2.0
"""CRI-O: its configuration by key, the keys that a reload takes, and the checks by the installed program.

CRI-O reads crio.conf and then every file of crio.conf.d, whatever its name ends with. On SIGHUP it takes over some
keys, stops at the first error, and only logs it. Sources: ``pkg/config/config.go`` and ``reload.go`` of cri-o/cri-o.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from nodeagent.core.plan.change import Action, KeyChange
from nodeagent.core.plan.domain import NODE, ByContent, Domain, ReloadProof, SocketHealth, UnitFailure
from nodeagent.core.plan.layers import Key, Layers, is_leftover, key_changes, merged, parse_toml, toml_problems
from nodeagent.core.plan.policy import DRAIN, NONE, REBOOT, reload, restart
from nodeagent.core.plan.program import TREE, ProgramCheck, rejection
from nodeagent.core.plan.sides import Sides
from nodeagent.domains.kubelet.unit import UNIT_DIRS, read_unit
from nodeagent.errors import Problem

UNIT: Final = "crio.service"
MAIN: Final = "/etc/crio/crio.conf"
DROPINS: Final = "/etc/crio/crio.conf.d"

RELOAD: Final = (reload(UNIT),)
RESTART: Final = (restart(UNIT),)
# Containers that run cannot be moved to other cgroups or to another storage.
STRONGEST: Final = (DRAIN, REBOOT)

# Keys below ``crio``. A name that ends in a dot is a table with all that is in it.
RELOADED: Final = (
    *("image.pause_image", "image.pause_image_auth_file", "image.pause_command", "image.pinned_images"),
    *("runtime.log_level", "runtime.log_filter", "runtime.decryption_keys_path", "runtime.seccomp_profile"),
    *("runtime.privileged_seccomp_profile", "runtime.apparmor_profile", "runtime.blockio_config_file"),
    *("runtime.blockio_reload", "runtime.rdt_config_file", "runtime.runtimes.", "runtime.default_runtime"),
    *("runtime.cdi_spec_dirs", "runtime.seccomp_baseline_profile"),
)
# Flags that a reload replaces by the values of the files, or by defaults.
DROPPED: Final = tuple(f"{name.rstrip('.').rpartition('.')[2].replace('_', '-')}" for name in RELOADED)
RESTARTED: Final = (
    *("additional_artifact_stores", "log_dir", "image.", "metrics.", "network.", "nri.", "stats.", "tracing."),
    *("api.grpc_max_recv_msg_size", "api.grpc_max_send_msg_size", "api.host_ip", "api.stream_address"),
    *("api.stream_enable_tls", "api.stream_idle_timeout", "api.stream_port", "api.stream_tls_ca"),
    *("api.stream_tls_cert", "api.stream_tls_key"),
    *("runtime.absent_mount_sources_to_reject", "runtime.add_inheritable_capabilities", "runtime.additional_devices"),
    *("runtime.allowed_devices", "runtime.bind_mount_prefix", "runtime.conmon", "runtime.conmon_cgroup"),
    *("runtime.conmon_env", "runtime.container_attach_socket_dir", "runtime.container_exits_dir"),
    *("runtime.container_min_memory", "runtime.ctr_stop_timeout", "runtime.default_capabilities"),
    *("runtime.default_env", "runtime.default_mounts_file", "runtime.default_sysctls", "runtime.default_ulimits"),
    *("runtime.device_ownership_from_security_context", "runtime.disable_hostport_mapping"),
    *("runtime.drop_infra_ctr", "runtime.enable_criu_support", "runtime.enable_pod_events", "runtime.gid_mappings"),
    *("runtime.hooks_dir", "runtime.hostnetwork_disable_selinux", "runtime.infra_ctr_cpuset"),
    *("runtime.irqbalance_config_file", "runtime.irqbalance_config_restore_file", "runtime.log_size_max"),
    *(
        "runtime.log_to_journald",
        "runtime.min_injected_gomaxprocs",
        "runtime.minimum_mappable_gid",
        "runtime.minimum_mappable_uid",
    ),
    *("runtime.namespaces_dir", "runtime.no_pivot", "runtime.pids_limit", "runtime.pinns_path"),
    *("runtime.read_only", "runtime.selinux", "runtime.separate_pull_cgroup", "runtime.shared_cpuset"),
    *("runtime.timezone", "runtime.uid_mappings", "runtime.workloads."),
)
# They say what CRI-O does when it starts, and nothing before.
AT_START: Final = ("clean_shutdown_file", "internal_repair", "internal_wipe", "version_file", "version_file_persist")

# A handler or a workload of a later file replaces the one of the same name, with all of its keys.
_WHOLE: Final = (("crio", "runtime", "runtimes"), ("crio", "runtime", "workloads"))


def actions_of(key: Key) -> tuple[tuple[Action, ...], str]:
    """Return the actions for a key. A key that is in no list requests the strongest."""
    if key[:1] != ("crio",):
        return (NONE,), "not read by CRI-O, whose tables are below [crio]"
    name = ".".join(key[1:])
    if _listed(name, AT_START):
        return (NONE,), ""
    if _listed(name, RELOADED):
        return RELOAD, ""
    if _listed(name, RESTARTED):
        return RESTART, ""
    return STRONGEST, "its effect is unknown"


def _listed(name: str, keys: Collection[str]) -> bool:
    return any(name == key or (key.endswith(".") and f"{name}.".startswith(key)) for key in keys)


def _at_start(key: str) -> bool:
    top, _, name = key.partition(".")
    return top == "crio" and _listed(name, AT_START)


def _layers(files: Mapping[str, bytes]) -> Layers:
    # CRI-O walks the directory: subdirectories count, and the order is that of the paths.
    drop_ins = sorted(path for path in files if path.startswith(f"{DROPINS}/"))
    return {path: parse_toml(files[path])[0] for path in (MAIN, *drop_ins) if path in files}


def _changed(sides: Sides) -> list[str]:
    paths = {path for path in (*sides.before, *sides.after) if path == MAIN or path.startswith(f"{DROPINS}/")}
    changed = [path for path in paths if sides.before.get(path) != sides.after.get(path)]
    # The order is that in which CRI-O reads them: a key is attributed to the last file that sets it.
    return sorted(changed, key=lambda path: (path != MAIN, path))


def _whole(key: Key) -> bool:
    return key[:-1] in _WHOLE


class CrioDomain(Domain):
    """CRI-O's own document of crio.conf and its drop-ins."""

    def reads(self, sides: Sides) -> Collection[str]:
        # The unit and its environment files have the flags that a reload drops.
        units = [path for directory in UNIT_DIRS for path in (f"{directory}/{UNIT}", f"{directory}/{UNIT}.d/")]
        before, after = (read_unit(side, UNIT, "crio") for side in (sides.before, sides.after))
        sources = (*before.environment_files, *after.environment_files)
        return (MAIN, f"{DROPINS}/", *units, *(path for path in sources if path.startswith("/")))

    def changes(self, sides: Sides) -> Sequence[KeyChange]:
        if not (changed := _changed(sides)):
            return ()
        before, after = _layers(sides.before), _layers(sides.after)
        unreadable = [path for path, data in (*before.items(), *after.items()) if data is None]
        if unreadable:
            # CRI-O starts with neither, so no document of it can be compared.
            message = f"{unreadable[0]} is no TOML on one side"
            return [KeyChange(path, "(all)", "", "", STRONGEST, message) for path in changed]
        documents = merged(before, whole=_whole), merged(after, whole=_whole)
        keys = key_changes(before, after, changed, documents, actions_of)
        return [replace(key, next_start=UNIT) if _at_start(key.key) else key for key in keys]

    def programs(self, sides: Sides) -> Sequence[ProgramCheck]:
        if not _changed(sides):
            return ()
        return [_check(sides.after, _check(sides.before, None))]

    def warnings(self, sides: Sides) -> Iterator[Problem]:
        for path in sorted(sides.after):
            if path.startswith(f"{DROPINS}/") and is_leftover(path):
                yield Problem(path, "is read by CRI-O, which reads every file of the directory, whatever its name")
        # A reload starts from the defaults and the files, and forgets the command line (cri-o#7586).
        flags = [f"--{flag}" for flag in read_unit(sides.after, UNIT, "crio").flags if flag in DROPPED]
        actions = {action for key in self.changes(sides) for action in key.actions}
        if flags and RELOAD[0] in actions and RESTART[0] not in actions:
            yield Problem(UNIT, f"loses {', '.join(flags)} of its command line with a reload, until its next start")

    def curable(self, failure: UnitFailure) -> bool:
        # It reads the same files after a boot, and then the kubelet does not start either.
        return failure.unit not in (UNIT, NODE) or not any(
            key.document.startswith("/etc/crio/") for key in failure.keys
        )


def _check(files: Mapping[str, bytes], control: ProgramCheck | None) -> ProgramCheck:
    tree = {path: content for path, content in files.items() if path == MAIN or path.startswith(f"{DROPINS}/")}
    # The directories exist, even without a file in them.
    tree.setdefault(MAIN, b"")
    arguments = (f"--config={TREE}{MAIN}", f"--config-dir={TREE}{DROPINS}", "config")
    return ProgramCheck("crio", arguments, tree, partial(rejection, "crio", MAIN), control=control)


DOMAIN: Final = CrioDomain(
    name="CRI-O",
    files={
        MAIN: ByContent(f"by key: Reload {UNIT}, Restart {UNIT}, or Drain and Reboot"),
        DROPINS: ByContent(f"by key: Reload {UNIT}, Restart {UNIT}, or Drain and Reboot"),
    },
    contents={MAIN: toml_problems, f"{DROPINS}/": toml_problems},
    health=(SocketHealth(UNIT, "/run/crio/crio.sock"),),
    # ExecReload= only sends SIGHUP, so the job of a rejected reload succeeds. CRI-O logs one of both texts.
    reload_proof=(
        ReloadProof(
            UNIT, "Configuration reload completed", "Unable to reload configuration", ("crio", "status", "config")
        ),
    ),
    joined=(UNIT,),
)
