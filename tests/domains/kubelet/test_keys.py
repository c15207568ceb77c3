# SPDX-License-Identifier: Apache-2.0
"""The table of keys and actions, and the documents that they come from."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nodeagent import domains
from nodeagent.core.config.machineconfig import FileEntry, MachineConfig, UnitEntry
from nodeagent.core.plan.change import Action, KeyChange
from nodeagent.core.plan.plan import make_plan
from nodeagent.core.plan.sides import HostView, Sides
from nodeagent.domains import default_policy
from nodeagent.domains.kubelet import DOMAIN
from nodeagent.domains.kubelet.document import KubeletConfig
from nodeagent.domains.kubelet.keys import actions_of
from tests.support.configs import config

CONF = "/etc/kubernetes/kubelet.conf"
DROPINS = "/etc/kubernetes/kubelet.conf.d"
UNIT = "/usr/lib/systemd/system/kubelet.service"
STATE = "/var/lib/kubelet"

RESTART = ["Restart kubelet.service"]
DRAIN = ["Drain", *RESTART]
REBOOT = ["Drain", "Reboot"]
CPU = ["Drain", f"ClearState kubelet.service {STATE}/cpu_manager_state", *RESTART]
MEMORY = ["Drain", f"ClearState kubelet.service {STATE}/memory_manager_state", *RESTART]
STATIC = {"cpuManagerPolicy": "static"}
STATIC_MEMORY = {"memoryManagerPolicy": "Static"}


def kubelet(**keys: Any) -> bytes:
    return json.dumps({"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", **keys}).encode()


def words(actions: tuple[Action, ...]) -> list[str]:
    return [" ".join([str(action.type), *filter(None, (action.unit, *action.paths))]) for action in actions]


TABLE: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "logging": ({}, {"logging": {"verbosity": 4}}, RESTART),
    "cluster DNS": ({"clusterDNS": ["10.0.0.1"]}, {"clusterDNS": ["10.0.0.2"]}, RESTART),
    "QPS": ({}, {"kubeAPIQPS": 100}, RESTART),
    "image GC": ({}, {"imageGCHighThresholdPercent": 90}, RESTART),
    "container logs": ({}, {"containerLogMaxSize": "50Mi"}, RESTART),
    "status frequency": ({"nodeStatusUpdateFrequency": "10s"}, {"nodeStatusUpdateFrequency": "4s"}, RESTART),
    "TLS": ({}, {"tlsMinVersion": "VersionTLS13"}, RESTART),
    "authentication": ({}, {"authentication": {"anonymous": {"enabled": False}}}, RESTART),
    "seccomp of new containers": ({}, {"seccompDefault": True}, RESTART),
    "isolation of local storage": ({}, {"localStorageCapacityIsolation": False}, DRAIN),
    "process limit": ({}, {"podPidsLimit": 4096}, RESTART),
    "harmless gate": ({}, {"featureGates": {"KubeletTracing": True}}, RESTART),
    "gate": ({}, {"featureGates": {"UserNamespacesSupport": True}}, DRAIN),
    "gate away": ({"featureGates": {"NodeSwap": True}}, {}, DRAIN),
    "more reserved": ({"systemReserved": {"cpu": "500m"}}, {"systemReserved": {"cpu": "1"}}, DRAIN),
    "reserved, new": ({}, {"kubeReserved": {"memory": "1Gi"}}, DRAIN),
    "less reserved": ({"systemReserved": {"memory": "1Gi"}}, {"systemReserved": {"memory": "500Mi"}}, RESTART),
    "reserved, gone": ({"kubeReserved": {"ephemeral-storage": "1Gi"}}, {}, RESTART),
    "reserved, no quantity": ({"systemReserved": {"cpu": "1"}}, {"systemReserved": {"cpu": "lots"}}, DRAIN),
    "higher threshold": (
        {"evictionHard": {"memory.available": "100Mi"}},
        {"evictionHard": {"memory.available": "1Gi"}},
        DRAIN,
    ),
    "lower threshold": (
        {"evictionHard": {"nodefs.available": "15%"}},
        {"evictionHard": {"nodefs.available": "10%"}},
        RESTART,
    ),
    "threshold in another form": (
        {"evictionHard": {"memory.available": "5%"}},
        {"evictionHard": {"memory.available": "1Mi"}},
        DRAIN,
    ),
    "no threshold before": (
        {"evictionHard": {"nodefs.available": "100%"}},
        {"evictionHard": {"nodefs.available": "95%"}},
        DRAIN,
    ),
    "threshold, default again": ({"evictionHard": {"memory.available": "50Mi"}}, {}, DRAIN),
    "fewer pods": ({"maxPods": 250}, {"maxPods": 110}, DRAIN),
    "fewer pods than the default": ({}, {"maxPods": 50}, DRAIN),
    "more pods": ({}, {"maxPods": 250}, RESTART),
    "0 pods are the default": ({"maxPods": 110}, {"maxPods": 0}, ["None"]),
    "0 for none": ({"port": 0, "registryBurst": 10, "eventBurst": 0}, {"kubeAPIBurst": 0, "maxOpenFiles": 0}, ["None"]),
    "0 pods, fewer than before": ({"maxPods": 250}, {"maxPods": 0}, DRAIN),
    "0 of a key that takes 0": ({"registryPullQPS": 5}, {"registryPullQPS": 0}, RESTART),
    "equal quantities": (
        {
            "systemReserved": {"memory": "500Mi"},
            "containerLogMaxSize": "1Mi",
            "evictionHard": {"imagefs.available": "10%"},
        },
        {
            "systemReserved": {"memory": "524288000"},
            "containerLogMaxSize": "1024Ki",
            "evictionHard": {"imagefs.available": "10.0%"},
        },
        ["None"],
    ),
    "equal quantities, CPU manager": (
        {**STATIC, "systemReserved": {"cpu": "500m"}},
        {**STATIC, "systemReserved": {"cpu": "0.5"}},
        ["None"],
    ),
    "topology manager": ({}, {"topologyManagerPolicy": "single-numa-node"}, DRAIN),
    "topology scope": ({}, {"topologyManagerScope": "pod"}, DRAIN),
    "CPU manager": ({}, STATIC, CPU),
    "CPU manager, options": (STATIC, {**STATIC, "cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}, CPU),
    "reserved CPUs": ({}, {"reservedSystemCPUs": "0,1"}, CPU),
    "more reserved, CPU manager": (STATIC, {**STATIC, "systemReserved": {"cpu": "1"}}, CPU),
    "memory manager": ({}, STATIC_MEMORY, MEMORY),
    "reserved memory": (STATIC_MEMORY, {**STATIC_MEMORY, "reservedMemory": [{"numaNode": 0}]}, MEMORY),
    "threshold, memory manager": (
        STATIC_MEMORY,
        {**STATIC_MEMORY, "evictionHard": {"memory.available": "1Gi"}},
        MEMORY,
    ),
    "cgroup driver": ({"cgroupDriver": "cgroupfs"}, {"cgroupDriver": "systemd"}, REBOOT),
    "cgroup root": ({}, {"cgroupRoot": "/pods"}, REBOOT),
    "cgroups per QoS": ({}, {"cgroupsPerQOS": False}, REBOOT),
    "pod logs": ({}, {"podLogsDir": "/var/log/other"}, REBOOT),
    "runtime": ({}, {"containerRuntimeEndpoint": "unix:///run/x.sock"}, REBOOT),
    "swap": ({}, {"failSwapOn": False}, REBOOT),
    "swap behaviour": ({}, {"memorySwap": {"swapBehavior": "LimitedSwap"}}, REBOOT),
    "kernel defaults": ({}, {"protectKernelDefaults": True}, REBOOT),
    "static pods": ({}, {"staticPodPath": "/etc/kubernetes/manifests"}, REBOOT),
    "unknown key": ({}, {"noSuchKey": 1}, REBOOT),
    "no key": ({"maxPods": 9, "port": 1}, {"port": 1, "maxPods": 9}, ["None"]),
    "null is the default": ({"port": None}, {}, ["None"]),
    "two keys": ({}, {"maxPods": 50, "port": 1}, DRAIN),
    "both managers": (
        {},
        {**STATIC, **STATIC_MEMORY},
        ["Drain", f"ClearState kubelet.service {STATE}/cpu_manager_state {STATE}/memory_manager_state", *RESTART],
    ),
    "state and boot": (
        {},
        {**STATIC, "cgroupRoot": "/x"},
        ["Drain", f"ClearState kubelet.service {STATE}/cpu_manager_state", "Reboot"],
    ),
}


# All fields of KubeletConfiguration v1beta1 of Kubernetes 1.36 but those of the type.
FIELDS = """
address allowedUnsafeSysctls authentication authorization cgroupDriver cgroupRoot cgroupsPerQOS clusterDNS
clusterDomain configMapAndSecretChangeDetectionStrategy containerLogMaxFiles containerLogMaxSize
containerLogMaxWorkers containerLogMonitorInterval containerRuntimeEndpoint contentType cpuCFSQuota
cpuCFSQuotaPeriod cpuManagerPolicy cpuManagerPolicyOptions cpuManagerReconcilePeriod crashLoopBackOff
enableContentionProfiling enableControllerAttachDetach enableDebugFlagsHandler enableDebuggingHandlers
enableProfilingHandler enableServer enableSystemLogHandler enableSystemLogQuery enforceNodeAllocatable
eventBurst eventRecordQPS evictionHard evictionMaxPodGracePeriod evictionMinimumReclaim
evictionPressureTransitionPeriod evictionSoft evictionSoftGracePeriod failCgroupV1 failSwapOn featureGates
fileCheckFrequency hairpinMode healthzBindAddress healthzPort httpCheckFrequency imageGCHighThresholdPercent
imageGCLowThresholdPercent imageMaximumGCAge imageMinimumGCAge imagePullCredentialsVerificationPolicy
imageServiceEndpoint iptablesDropBit iptablesMasqueradeBit kernelMemcgNotification kubeAPIBurst kubeAPIQPS
kubeReserved kubeReservedCgroup kubeletCgroups localStorageCapacityIsolation logging makeIPTablesUtilChains
maxOpenFiles maxParallelImagePulls maxPods memoryManagerPolicy memoryReservationPolicy memorySwap
memoryThrottlingFactor mergeDefaultEvictionSettings nodeLeaseDurationSeconds nodeStatusMaxImages
nodeStatusReportFrequency nodeStatusUpdateFrequency oomScoreAdj podCIDR podLogsDir podPidsLimit podsPerCore port
preloadedImagesVerificationAllowlist protectKernelDefaults providerID qosReserved readOnlyPort registerNode
registerWithTaints registryBurst registryPullQPS reservedMemory reservedSystemCPUs resolvConf rotateCertificates
runOnce runtimeRequestTimeout seccompDefault serializeImagePulls serverTLSBootstrap showHiddenMetricsForVersion
shutdownGracePeriod shutdownGracePeriodByPodPriority shutdownGracePeriodCriticalPods singleProcessOOMKill
staticPodPath staticPodURL staticPodURLHeader streamingConnectionIdleTimeout syncFrequency systemCgroups
systemReserved systemReservedCgroup tlsCertFile tlsCipherSuites tlsCurvePreferences tlsMinVersion
tlsPrivateKeyFile topologyManagerPolicy topologyManagerPolicyOptions topologyManagerScope tracing userNamespaces
volumePluginDir volumeStatsAggPeriod
"""
# The set of pods, the identity of the Node, and what they have mounted: nothing is known about pods that run.
NOT_LISTED = {
    *("podCIDR", "providerID", "runOnce", "staticPodURL", "staticPodURLHeader", "userNamespaces", "volumePluginDir"),
}


@pytest.mark.parametrize("field", FIELDS.split())
def test_the_effect_of_each_field_is_known(field: str) -> None:
    actions, why = actions_of(field, None, 1, {})
    assert (why == "its effect is unknown") == (field in NOT_LISTED)
    assert words(actions)[-1] in ("Restart kubelet.service", "Reboot")


@pytest.mark.parametrize("case", TABLE)
def test_actions_of_keys(case: str) -> None:
    before, after, actions = TABLE[case]
    old, new = (config(files={CONF: kubelet(**keys)}) for keys in (before, after))
    assert words(make_plan(old, new, default_policy()).actions) == actions


def keys(old: MachineConfig, new: MachineConfig, **host: bytes) -> list[KeyChange]:
    return list(DOMAIN.changes(Sides(old, new, HostView({HOST[name]: content for name, content in host.items()}))))


HOST = {"unit": UNIT, "conf": CONF, "dropin": f"{DROPINS}/50-host.conf", "env": "/etc/kubelet.env"}


def test_a_key_has_its_document_and_both_values() -> None:
    (key,) = keys(config(files={CONF: kubelet(maxPods=110)}), config(files={CONF: kubelet(maxPods=250)}))
    assert (key.document, key.key, key.before, key.after) == (CONF, "maxPods", "110", "250")


@pytest.mark.parametrize("content", [b"[]", b"x: [", b"\xff", b"", b"a: &x {b: 1}\nc: {<<: *x}\n", b"a: *x\n"])
def test_a_document_that_cannot_be_read_has_the_strongest_action(content: bytes) -> None:
    (change,) = make_plan(config(files={CONF: kubelet()}), config(files={CONF: content}), default_policy()).changes
    assert words(change.actions) == REBOOT
    assert "(not shown)" in {key.after for key in change.keys}


# Merge patches


def dropin(name: str, **values: Any) -> dict[str, bytes]:
    return {f"{DROPINS}/{name}": kubelet(**values)}


def test_drop_ins_are_merge_patches_in_the_order_of_their_paths() -> None:
    main = {CONF: kubelet(maxPods=1, clusterDNS=["a"], logging={"verbosity": 1, "format": "json"}, port=3)}
    first = dropin("10.conf", maxPods=2, clusterDNS=["b"], logging={"verbosity": 2})
    second = {**dropin("sub/20.conf", maxPods=3, port=None), **dropin("30.bak", maxPods=4)}
    found = keys(config(), config(files={**main, **first, **second}))
    assert {key.key: (key.after, key.document) for key in found} == {
        "maxPods": ("3", f"{DROPINS}/sub/20.conf"),
        "clusterDNS": ('["b"]', f"{DROPINS}/10.conf"),
        "logging.verbosity": ("2", f"{DROPINS}/10.conf"),
        "logging.format": ('"json"', CONF),
    }


def test_a_key_that_a_stronger_document_sets_does_not_change() -> None:
    """The drop-in is of the host: no config manages it."""
    old, new = config(files={CONF: kubelet(maxPods=1)}), config(files={CONF: kubelet(maxPods=2)})
    assert keys(old, new, dropin=kubelet(maxPods=9)) == []
    sides = Sides(old, new, HostView({HOST["dropin"]: kubelet(maxPods=9)}))
    plan = make_plan(old, new, default_policy(), host=sides.host)
    assert (words(plan.actions), plan.changes[0].why) == (["None"], "no key changes")


def test_a_drop_in_that_leaves_brings_the_value_of_the_main_file_back() -> None:
    main = {CONF: kubelet(maxPods=100)}
    (key,) = keys(config(files={**main, **dropin("10.conf", maxPods=200)}), config(files=main))
    assert (key.document, key.before, key.after, words(key.actions)) == (
        f"{DROPINS}/10.conf",
        "200",
        "100",
        DRAIN,
    )


# The unit


def exec_start(flags: str, more: str = "") -> bytes:
    return f"[Service]\n{more}\nExecStart=/usr/bin/wrapper /usr/bin/kubelet {flags}\n".encode()


IN_PLACE = f"--config={CONF} --config-dir {DROPINS}"


def test_a_flag_wins_over_the_files() -> None:
    unit = exec_start(f"{IN_PLACE} --max-pods=7")
    assert keys(config(files={CONF: kubelet(maxPods=1)}), config(files={CONF: kubelet(maxPods=2)}), unit=unit) == []


def test_feature_gates_of_flags_and_files_are_merged() -> None:
    unit = exec_start(f"{IN_PLACE} --feature-gates=A=true")
    old = config(files={CONF: kubelet(featureGates={"A": False, "B": False})})
    new = config(files={CONF: kubelet(featureGates={"A": True, "B": True})})
    assert [key.key for key in keys(old, new, unit=unit)] == ["featureGates.B"]


def test_a_map_of_a_flag_replaces_that_of_the_files() -> None:
    unit = exec_start(f"{IN_PLACE} --system-reserved=cpu=1 --eviction-hard=memory.available<5%")
    old = config(files={CONF: kubelet(systemReserved={"memory": "1Gi"}, logging={"verbosity": 2})})
    new = config(files={CONF: kubelet(systemReserved={"memory": "2Gi"}, logging={"verbosity": 3})})
    assert [key.key for key in keys(old, new, unit=unit)] == ["logging.verbosity"]


def test_the_files_are_those_that_the_unit_names() -> None:
    unit = exec_start("--config=/etc/other.conf")
    old, new = config(files={CONF: kubelet(maxPods=1)}), config(files={CONF: kubelet(maxPods=2)})
    assert keys(old, new, unit=unit) == []


def with_unit(contents: str | None = None, **more: Any) -> MachineConfig:
    return MachineConfig("", units={"kubelet.service": UnitEntry("kubelet.service", contents=contents, **more)})


def test_flags_of_a_unit_of_the_config_need_a_daemon_reload() -> None:
    old, new = (with_unit(exec_start(flags).decode()) for flags in ("--v=2 --max-pods=100", "--v=4 --max-pods=50"))
    (change,) = make_plan(old, new, default_policy()).changes
    assert words(change.actions) == ["Drain", "DaemonReload", *RESTART]
    assert {key.key: key.after for key in change.keys} == {"logging.verbosity": "4", "maxPods": "50"}


@pytest.mark.parametrize(
    ("flag", "key", "actions"),
    [
        ("event-burst", "eventBurst", RESTART),
        ("kubelet-cgroups", "kubeletCgroups", ["Drain", *RESTART]),
        ("container-runtime-endpoint", "containerRuntimeEndpoint", REBOOT),
        ("node-labels", "--node-labels", RESTART),
        ("node-ip", "--node-ip", REBOOT),
    ],
)
def test_a_flag_has_the_actions_of_the_key_of_its_name(flag: str, key: str, actions: list[str]) -> None:
    old, new = (KubeletConfig({UNIT: exec_start(f"--{flag}={value}")}).keys for value in ("1", "2"))
    assert old.keys() == new.keys() == {key}
    assert words(actions_of(key, old[key], new[key], new)[0]) == actions


@pytest.mark.parametrize(
    ("more", "actions"),
    [
        ({"enabled": False}, REBOOT),
        ({"mask": True}, REBOOT),
        ({"dropins": {"10.conf": "[Service]\nExecStartPre=/bin/x\n"}}, REBOOT),
        ({"dropins": {"10.conf": "[Unit]\nDocumentation=https://x\n"}}, ["DaemonReload"]),
        (
            {"dropins": {"10.conf": "[Service]\nEnvironment=HTTP_PROXY=http://a:secret@x\n"}},
            ["DaemonReload", *RESTART],
        ),
        ({"dropins": {"10.conf": "[Service]\nExecStart=\nExecStart=/bin/other\n"}}, REBOOT),
        ({"dropins": {"10.conf": "[Service]\nEnvironment=LEVEL=9\n"}}, ["DaemonReload", *RESTART]),
    ],
)
def test_what_else_a_unit_says(more: dict[str, Any], actions: list[str]) -> None:
    contents = exec_start("--v=${LEVEL}", "Environment=LEVEL=2").decode()
    plan = make_plan(with_unit(contents), with_unit(contents, **more), default_policy())
    assert words(plan.actions) == actions
    assert "secret" not in repr(plan.changes)


def test_flags_come_from_environment_files_too() -> None:
    unit = exec_start(f"{IN_PLACE} $EXTRA --node-ip=${{IP}}", "EnvironmentFile=-/etc/kubelet.env")
    env = b'# comment\nEXTRA="--max-pods=3 --v=2"\nIP=10.0.0.1\n'
    assert keys(config(), config(files={CONF: kubelet(maxPods=9)}), unit=unit, env=env, conf=kubelet()) == []
    host = HostView({UNIT: unit})
    assert "/etc/kubelet.env" in DOMAIN.reads(Sides(host=host))
    assert f"{DROPINS}/" in DOMAIN.reads(Sides(host=host))


def test_the_state_is_below_the_directory_of_the_kubelet() -> None:
    unit = exec_start(f"{IN_PLACE} --root-dir=/var/lib/other/")
    (key,) = keys(config(files={CONF: kubelet()}), config(files={CONF: kubelet(**STATIC)}), unit=unit)
    assert key.actions[1].paths == ("/var/lib/other/cpu_manager_state",)


def test_credentials_are_not_shown() -> None:
    new = config(files={CONF: kubelet(staticPodURLHeader={"Authorization": ["Bearer x"]})})
    (key,) = keys(config(files={CONF: kubelet()}), new)
    assert key.after == "(not shown)"


def test_a_plan_is_bounded() -> None:
    many = {f"key{number:04}": "x" * 1000 for number in range(1000)}
    (change,) = make_plan(
        config(files={CONF: kubelet()}), config(files={CONF: kubelet(**many, **{"k" * 1000: 1})}), default_policy()
    ).changes
    assert words(change.actions) == REBOOT
    assert len(change.keys) == 200
    assert all(len(key.key) < 300 and len(key.after) < 300 for key in change.keys)


def test_keys_are_compared_once_for_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Sides] = []
    real = type(DOMAIN).changes

    def counted(self: Any, sides: Sides) -> Any:
        calls.append(sides)
        return real(self, sides)

    monkeypatch.setattr(type(DOMAIN), "changes", counted)
    files = {key: value for number in range(20) for key, value in dropin(f"{number}.conf", port=number).items()}
    make_plan(config(), config(files=files), default_policy())
    assert len(calls) == 1


def test_a_change_of_the_mode_changes_no_key() -> None:
    old = config(files={CONF: kubelet()})
    new = MachineConfig("", files={CONF: FileEntry(CONF, kubelet(), mode=0o600)})
    assert words(make_plan(old, new, default_policy()).actions) == ["None"]


NAMED = {
    "/etc/kubernetes/kubeconfig": "--kubeconfig",
    "/etc/kubernetes/pki/kubelet.crt": "tlsCertFile",
    "/etc/kubernetes/pki/kubelet.key": "tlsPrivateKeyFile",
    "/etc/providers.yaml": "--image-credential-provider-config",
}


@pytest.mark.parametrize("path", [*NAMED, "/etc/kubernetes/other"])
def test_a_file_that_the_configuration_names_restarts_the_kubelet(path: str) -> None:
    flags = "".join(f" {key}={each}" for each, key in NAMED.items() if key.startswith("--"))
    keys = {key: each for each, key in NAMED.items() if not key.startswith("--")}
    host = {UNIT: f"[Service]\nExecStart=/usr/bin/kubelet --config={CONF}{flags}\n".encode(), CONF: kubelet(**keys)}
    old, new = (config(files={path: content}) for content in (b"1", b"2"))
    made = make_plan(old, new, default_policy(), host=HostView(host))
    assert words(made.actions) == (RESTART if path in NAMED else REBOOT)
    assert words(make_plan(old, new, default_policy()).actions) == REBOOT, "without a host nothing names it"


ANCHORED = b"""\
evictionHard: &least {memory.available: 500Mi}
evictionSoft: *least
evictionSoftGracePeriod: {memory.available: 30s}
maxPods: 9
"""


def test_a_file_with_anchors_is_read_as_the_kubelet_reads_it() -> None:
    least = {"memory.available": "500Mi"}
    grace = {"memory.available": "30s"}
    plain = kubelet(evictionHard=least, evictionSoft=least, evictionSoftGracePeriod=grace, maxPods=9)
    host = HostView({UNIT: exec_start(f"--config={CONF}")})

    def planned(old: bytes, new: bytes) -> list[str]:
        first, second = (config(files={CONF: content}) for content in (old, new))
        assert domains.validate(first, second) == ()
        return words(make_plan(first, second, default_policy(), host=host).actions)

    assert planned(plain, ANCHORED) == ["None"]
    assert planned(ANCHORED, ANCHORED.replace(b"maxPods: 9", b"maxPods: 10")) == RESTART
    assert planned(ANCHORED, ANCHORED.replace(b"500Mi", b"1Gi")) == DRAIN


def kubeconfig(key: str) -> bytes:
    return f"apiVersion: v1\nkind: Config\nusers:\n- name: node\n  user: {{client-key-data: {key}}}\n".encode()


KUBEADM = {
    UNIT: exec_start("--config=/var/lib/kubelet/config.yaml --kubeconfig=/etc/kubernetes/kubelet.conf"),
    "/var/lib/kubelet/config.yaml": kubelet(maxPods=9),
}


@pytest.mark.parametrize("host", [KUBEADM, {}], ids=["kubeadm", "without a unit"])
def test_a_kubeconfig_where_others_have_the_configuration(host: dict[str, bytes]) -> None:
    old, new = (config(files={CONF: kubeconfig(key)}) for key in ("c2VjcmV0LW9uZQ==", "c2VjcmV0LXR3bw=="))
    made = make_plan(old, new, default_policy(), host=HostView(host))
    assert words(made.actions) == RESTART
    assert "c2VjcmV0" not in repr(made), "no credentials in a plan"
    assert domains.validate(old, new) == ()


def test_a_configuration_that_becomes_a_kubeconfig_shows_no_credentials() -> None:
    old, new = config(files={CONF: kubelet(maxPods=9)}), config(files={CONF: kubeconfig("c2VjcmV0")})
    made = make_plan(old, new, default_policy(), host=HostView({UNIT: exec_start(f"--config={CONF}")}))
    assert [key.key for key in made.changes[0].keys] == ["(unreadable)", "maxPods"]
    assert words(made.actions) == REBOOT
    assert "c2VjcmV0" not in repr(made)
