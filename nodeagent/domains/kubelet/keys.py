# SPDX-License-Identifier: Apache-2.0
"""The action for each key of a kubelet configuration.

A kubelet reads its configuration once, so every key needs a restart at least. Containers go on, but each pod is
admitted again: with more reserved, higher thresholds or fewer pods, some are rejected and killed, so the node is
drained first. Keys that are not listed have the strongest actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from nodeagent.core.plan.change import Action
from nodeagent.core.plan.policy import DRAIN, NONE, REBOOT, clear_state, restart
from nodeagent.core.validate.quantity import parse_quantity
from nodeagent.domains.kubelet.unit import KUBELET

RESTART: Final = restart(KUBELET)
RESTARTED: Final = (RESTART,)
DRAINED: Final = (DRAIN, RESTART)
REBOOTED: Final = (DRAIN, REBOOT)
ROOT_DIR: Final = "/var/lib/kubelet"
# The checkpoints of both managers, below the root directory.
CPU_STATE: Final = "cpu_manager_state"
MEMORY_STATE: Final = "memory_manager_state"
# Keys for which a kubelet takes 0 as it takes none: for this default (pkg/kubelet/apis/config/v1beta1/defaults.go).
ZERO: Final[Mapping[str, int]] = {
    "eventBurst": 100,
    "kubeAPIBurst": 100,
    "maxOpenFiles": 1000000,
    "maxPods": 110,
    "nodeLeaseDurationSeconds": 40,
    "port": 10250,
    "registryBurst": 10,
}

# Keys whose maps and values matter to the kubelet process and to new pods only.
ONLY_RESTART: Final = frozenset(
    {
        "address",
        "allowedUnsafeSysctls",
        "authentication",
        "authorization",
        "clusterDNS",
        "clusterDomain",
        "configMapAndSecretChangeDetectionStrategy",
        "containerLogMaxFiles",
        "containerLogMaxSize",
        "containerLogMaxWorkers",
        "containerLogMonitorInterval",
        "contentType",
        "crashLoopBackOff",
        "enableContentionProfiling",
        "enableControllerAttachDetach",
        "enableDebugFlagsHandler",
        "enableDebuggingHandlers",
        "enableProfilingHandler",
        "enableSystemLogHandler",
        "enableSystemLogQuery",
        "enableServer",
        "eventBurst",
        "eventRecordQPS",
        "evictionMaxPodGracePeriod",
        "evictionMinimumReclaim",
        "evictionPressureTransitionPeriod",
        "evictionSoftGracePeriod",
        "failCgroupV1",
        "fileCheckFrequency",
        "flushFrequency",
        "hairpinMode",
        "healthzBindAddress",
        "healthzPort",
        "httpCheckFrequency",
        "imageGCHighThresholdPercent",
        "imageGCLowThresholdPercent",
        "imageMaximumGCAge",
        "imageMinimumGCAge",
        "imagePullCredentialsVerificationPolicy",
        "iptablesDropBit",
        "iptablesMasqueradeBit",
        "kernelMemcgNotification",
        "kubeAPIBurst",
        "kubeAPIQPS",
        "logging",
        "makeIPTablesUtilChains",
        "maxOpenFiles",
        "maxParallelImagePulls",
        "memoryThrottlingFactor",
        "nodeLeaseDurationSeconds",
        "nodeStatusMaxImages",
        "nodeStatusReportFrequency",
        "nodeStatusUpdateFrequency",
        "oomScoreAdj",
        "podPidsLimit",
        "port",
        "preloadedImagesVerificationAllowlist",
        "readOnlyPort",
        "registerNode",
        "registerWithTaints",
        "registryBurst",
        "registryPullQPS",
        "resolvConf",
        "rotateCertificates",
        "runtimeRequestTimeout",
        "seccompDefault",
        "serializeImagePulls",
        "serverTLSBootstrap",
        "showHiddenMetricsForVersion",
        "shutdownGracePeriod",
        "shutdownGracePeriodByPodPriority",
        "shutdownGracePeriodCriticalPods",
        "singleProcessOOMKill",
        "streamingConnectionIdleTimeout",
        "syncFrequency",
        "tlsCertFile",
        "tlsCipherSuites",
        "tlsCurvePreferences",
        "tlsMinVersion",
        "tlsPrivateKeyFile",
        "tracing",
        "volumeStatsAggPeriod",
        # Flags without a key.
        "--bootstrap-kubeconfig",
        "--cert-dir",
        "--image-credential-provider-bin-dir",
        "--image-credential-provider-config",
        "--kubeconfig",
        "--log-json-info-buffer-size",
        "--log-json-split-stream",
        "--logging-format",
        "--node-labels",
    }
)
# Keys with which pods that run may be rejected.
DRAIN_FIRST: Final = frozenset(
    {
        "cpuCFSQuota",
        "cpuCFSQuotaPeriod",
        "cpuManagerReconcilePeriod",
        "enforceNodeAllocatable",
        "kubeletCgroups",
        "kubeReservedCgroup",
        "localStorageCapacityIsolation",
        "memoryReservationPolicy",
        "mergeDefaultEvictionSettings",
        "podsPerCore",
        "qosReserved",
        "systemCgroups",
        "systemReservedCgroup",
        "topologyManagerPolicy",
        "topologyManagerPolicyOptions",
        "topologyManagerScope",
    }
)
CPU_MANAGER: Final = frozenset({"cpuManagerPolicy", "cpuManagerPolicyOptions", "reservedSystemCPUs"})
MEMORY_MANAGER: Final = frozenset({"memoryManagerPolicy", "reservedMemory"})
RESERVED: Final = frozenset({"systemReserved", "kubeReserved"})
EVICTION: Final = frozenset({"evictionHard", "evictionSoft"})
QUANTITIES: Final = RESERVED | EVICTION | {"evictionMinimumReclaim", "containerLogMaxSize"}
# Keys that are known to need a boot.
BOOT: Final = frozenset(
    {
        "--root-dir",
        "cgroupDriver",
        "cgroupRoot",
        "cgroupsPerQOS",
        "containerRuntimeEndpoint",
        "failSwapOn",
        "imageServiceEndpoint",
        "memorySwap",
        "podLogsDir",
        "protectKernelDefaults",
        "staticPodPath",
    }
)
# All keys but maps of amounts and gates.
KEYS: Final = ONLY_RESTART | DRAIN_FIRST | CPU_MANAGER | MEMORY_MANAGER | BOOT | {"maxPods"}
# Gates that change nothing for pods. Others may require a drain by their own documentation.
HARMLESS_GATES: Final = frozenset(
    {
        "ComponentSLIs",
        "ContextualLogging",
        "KubeletTracing",
        "LoggingAlphaOptions",
        "LoggingBetaOptions",
        "ReloadKubeletServerCertificateFile",
        "RotateKubeletServerCertificate",
    }
)
PER_CORE: Final = "podsPerCore limits the pods of this node as well"
SECRET: Final = ("environment ", "staticPodURLHeader", "--manifest-url-header")


def secret(key: str) -> bool:
    """Return whether the value of ``key`` is not shown: credentials of a proxy or of a server of manifests."""
    return key.startswith(SECRET)


def actions_of(key: str, before: Any, after: Any, config: Mapping[str, Any]) -> tuple[tuple[Action, ...], str]:
    """Return the actions for ``key``, and why. None is a key that is not set; ``config`` has all keys of the new side,
    of the old one if there is no new one."""
    top, _, below = key.partition(".")
    if _same(key, top, before, after):
        return (NONE,), "the same value in another form"
    root = str(config.get("--root-dir") or ROOT_DIR).rstrip("/")
    if top in CPU_MANAGER:
        return _cleared(root, CPU_STATE), "state of the CPU manager does not fit another policy"
    if top in MEMORY_MANAGER:
        return _cleared(root, MEMORY_STATE), "state of the memory manager does not fit another policy"
    if top in RESERVED or top in EVICTION:
        return _reservation(top, below, before, after, config, root)
    if top == "maxPods":
        fewer = _pods(after) < _pods(before)
        cause = "pods that run may be too many" if fewer else ""
        # Such a change need not show in the capacity of the Node.
        return (DRAINED if fewer else RESTARTED), PER_CORE if config.get("podsPerCore") else cause
    if top == "featureGates":
        return (RESTARTED, "") if below in HARMLESS_GATES else (DRAINED, "a feature gate may change what runs")
    if top in DRAIN_FIRST:
        return DRAINED, "pods that run may be rejected"
    if top in ONLY_RESTART or key.startswith("environment "):
        return RESTARTED, ""
    if top in BOOT:
        return REBOOTED, "pods and their cgroups have to be made again"
    return REBOOTED, "its effect is unknown"


def _cleared(root: str, *names: str) -> tuple[Action, ...]:
    # With the state of another policy, a kubelet reports READY=1 and ends a moment later. It makes a missing file
    # again.
    return (DRAIN, clear_state(KUBELET, *(f"{root}/{name}" for name in names)), RESTART)


def _reservation(
    top: str, below: str, before: Any, after: Any, config: Mapping[str, Any], root: str
) -> tuple[tuple[Action, ...], str]:
    states = []
    # The static policies compare their state with what is reserved, and end if that has changed.
    if below == "cpu" and str(config.get("cpuManagerPolicy")).lower() == "static":
        states.append(CPU_STATE)
    if below in ("memory", "memory.available") and str(config.get("memoryManagerPolicy")).lower() == "static":
        states.append(MEMORY_STATE)
    if states:
        return _cleared(root, *states), "the state of a manager has the previous reservation"
    # A reservation that is not set is none. A threshold that is not set may have a default.
    unset = "0" if top in RESERVED and below else None
    was, now = (_size(unset if value is None else value) for value in (before, after))
    if was is None or now is None or was[1] != now[1] or now[0] > was[0]:
        return DRAINED, "pods that run may no longer fit"
    return RESTARTED, "less is kept back than before"


def _size(value: Any) -> tuple[Any, bool] | None:
    """Return the size, and whether it is a percentage; None for a text that is neither a percentage nor a quantity."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    text = str(value).strip()
    percent = text.endswith("%")
    # The kubelet takes 100% for no threshold.
    number = parse_quantity("0" if text == "100%" else text.removesuffix("%"))
    return None if number is None else (number, percent)


def _same(key: str, top: str, before: Any, after: Any) -> bool:
    """Return whether the kubelet takes both values of ``key`` for one."""
    if key in ZERO:
        return bool(number_of(key, before) == number_of(key, after))
    if top not in QUANTITIES or before is None or after is None:
        return False
    was, now = _size(before), _size(after)
    return bool(was is not None and was == now)


def number_of(key: str, value: Any) -> Any:
    """Return the value that a kubelet takes for a key of ``ZERO``."""
    number = isinstance(value, int) and not isinstance(value, bool)
    return ZERO[key] if value is None or (number and value == 0) else value


def _pods(value: Any) -> float:
    pods = number_of("maxPods", value)
    return pods if isinstance(pods, int) and not isinstance(pods, bool) else 0
