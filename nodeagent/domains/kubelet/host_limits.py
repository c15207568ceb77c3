"""Cgroups and settings of the kernel with which a kubelet ends after it has reported that it is ready.

Sources: ``enforceNodeAllocatableCgroups`` and ``setupKernelTunables`` in pkg/kubelet/cm of the kubelet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from nodeagent.core.config.paths import UNIT_DIR
from nodeagent.core.plan.layers import parse_toml
from nodeagent.core.plan.sysctl import DIRECTORIES, parse, read_all
from nodeagent.domains.kubelet.document import KubeletConfig

CGROUPS: Final = "/sys/fs/cgroup"
# Only the unified hierarchy has it.
ROOT_CONTROLLERS: Final = f"{CGROUPS}/cgroup.controllers"
SYSCTL_FILE: Final = "/etc/sysctl.conf"
SWAPS: Final = "/proc/swaps"
CONTAINERD: Final = "/etc/containerd/config.toml"
# With protectKernelDefaults a kubelet accepts no other values.
KERNEL: Final[Mapping[str, str]] = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


def paths_of(config: KubeletConfig) -> Collection[str]:
    """Return the files of the host that the checks of ``config`` need."""
    found = {SWAPS, ROOT_CONTROLLERS, *(_controllers(group) for _, _, group in _enforced(config))}
    if config.keys.get("protectKernelDefaults") is True:
        found |= {f"/proc/sys/{name}" for name in KERNEL} | {f"{path}/" for path in DIRECTORIES} | {SYSCTL_FILE}
    if "containerd" in str(config.keys.get("containerRuntimeEndpoint")):
        found.add(CONTAINERD)
    return found


def host_problems_of(config: KubeletConfig) -> Iterator[tuple[str, str]]:
    """Yield key and problem. What the host does not show is no problem."""
    for key, reserved, group in _enforced(config):
        if not any(name.startswith(f"{reserved}.") for name in config.keys):
            yield "enforceNodeAllocatable", f"enforces {reserved}, which reserves nothing"
        # Without the unified hierarchy the cgroups have other paths, so nothing is known.
        elif ROOT_CONTROLLERS in config.files and _controllers(group) not in config.files and not _made(config, group):
            yield key, f"names a cgroup that this host does not have: {group}"
    if config.keys.get("protectKernelDefaults") is True:
        # A value that sysctl.d sets is right after a boot, and may only be changed at the moment.
        set_at_boot = {**read_all(config.files).values, **parse(config.files.get(SYSCTL_FILE, b"")).values}
        for name, wanted in KERNEL.items():
            value = config.files.get(f"/proc/sys/{name}", wanted.encode()).decode("ascii", "replace").strip()
            if value != wanted and set_at_boot.get(name) != wanted:
                text = (
                    f"needs {name.replace('/', '.')} = {wanted}; this host has {value}, and no file of sysctl.d sets it"
                )
                yield "protectKernelDefaults", text


def doubts_of(config: KubeletConfig) -> Iterator[tuple[str, str]]:
    """Yield key and warning, for what a reboot or another runtime may make right."""
    # failSwapOn is true and cgroupDriver is cgroupfs unless they are set. The first line of /proc/swaps is a title.
    swaps = config.files.get(SWAPS, b"").splitlines()[1:]
    if swaps and config.keys.get("failSwapOn", True) is True:
        used = swaps[0].split()[0].decode(errors="replace")
        yield "failSwapOn", f"is true and this host has swap ({used}): the kubelet does not start with it"
    by_runtime = _systemd_cgroup(config.files.get(CONTAINERD))
    driver = config.keys.get("cgroupDriver", "cgroupfs")
    if by_runtime is not None and driver in ("cgroupfs", "systemd") and by_runtime != (driver == "systemd"):
        other = "true" if by_runtime else "false"
        yield (
            "cgroupDriver",
            f"is {driver} and SystemdCgroup of containerd is {other}: before 2.0 no pod starts with both",
        )


def _enforced(config: KubeletConfig) -> Iterator[tuple[str, str, str]]:
    """Yield the key that names a cgroup, the reservation, and the cgroup."""
    wanted = config.keys.get("enforceNodeAllocatable")
    # The names with this ending enforce fewer resources in the same cgroup.
    names = [str(name).removesuffix("-compressible") for name in wanted] if isinstance(wanted, list) else []
    for name, reserved in (("system-reserved", "systemReserved"), ("kube-reserved", "kubeReserved")):
        group = config.keys.get(f"{reserved}Cgroup")
        # A name with dashes below another slice has another path with the driver of systemd.
        if name in names and isinstance(group, str) and group.strip("/") and "-" not in group:
            yield f"{reserved}Cgroup", reserved, f"/{group.strip('/')}"


def _made(config: KubeletConfig, group: str) -> bool:
    """Whether a unit below /etc may make the cgroup: a slice, or a service that names one."""
    name = group.rpartition("/")[2]
    units = (path for path in config.files if path.startswith(f"{UNIT_DIR}/"))
    # Slice= of any unit makes the slice too, so its name in a text is enough.
    return any(path.endswith(f"/{name}") or name.encode() in config.files[path] for path in units)


def _controllers(group: str) -> str:
    return f"{CGROUPS}{group}/cgroup.controllers"


def _systemd_cgroup(content: bytes | None) -> bool | None:
    """Return SystemdCgroup of the handler runc in a configuration of containerd 1, None if it does not say."""
    data = parse_toml(content)[0] if content is not None else None
    # Version 3 is that of containerd 2, which reports its driver to the kubelet: its own key is ignored then.
    found: object = data if data is not None and data.get("version") in (1, 2) else None
    for name in ("plugins", "io.containerd.grpc.v1.cri", "containerd", "runtimes", "runc", "options"):
        found = found.get(name) if isinstance(found, dict) else None
    value = found.get("SystemdCgroup", False) if isinstance(found, dict) else None
    return value if isinstance(value, bool) else None
