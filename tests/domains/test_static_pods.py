# SPDX-License-Identifier: Apache-2.0
"""The actions of changed manifests, and what a config must not change."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from nodeagent import domains
from nodeagent.core.config.machineconfig import FileEntry, MachineConfig
from nodeagent.core.plan.change import Action, ActionType, Plan
from nodeagent.core.plan.plan import disruption, make_plan
from nodeagent.core.plan.plan_json import plan_from_dict, plan_to_dict
from nodeagent.core.plan.policy import DRAIN, REBOOT
from nodeagent.core.plan.sides import HostView, Sides
from nodeagent.core.plan.steps import RestartStaticPod, WritePath, act_steps, describe, write_steps
from nodeagent.domains import default_policy, static_pods

DIRECTORY = "/etc/kubernetes/manifests"
PATH = f"{DIRECTORY}/etcd.yaml"


def pod(name: str = "etcd", namespace: str = "kube-system", **container: Any) -> dict[str, Any]:
    made = {"name": name, "image": "etcd:1", "command": ["etcd", "--data-dir=/var/lib/etcd"], **container}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [made]},
    }


def text(document: dict[str, Any]) -> bytes:
    return yaml.safe_dump(document).encode()


def config(files: dict[str, bytes] | None = None) -> MachineConfig:
    return MachineConfig("c", files={path: FileEntry(path, content) for path, content in (files or {}).items()})


def plan(old: dict[str, bytes], new: dict[str, bytes], host: dict[str, bytes] | None = None) -> Plan:
    return make_plan(config(old), config(new), default_policy(), host=HostView(host or {}))


def bare(made: Plan) -> list[tuple[ActionType, str, tuple[str, ...]]]:
    return [(action.type, action.unit, action.paths) for action in made.actions]


RESTART = (ActionType.RESTART_STATIC_POD, "kube-system/etcd", (PATH,))


@pytest.mark.parametrize(
    ("old", "new", "keys"),
    [
        (pod(), pod(image="etcd:2"), ["spec.containers[etcd].image"]),
        (pod(), pod(env=[{"name": "A", "value": "secret"}]), ["spec.containers[etcd].env[A]"]),
        (None, pod(), ["pod"]),
        (pod(), None, ["pod"]),
    ],
)
def test_a_changed_pod_is_restarted_without_a_drain(
    old: dict[str, Any] | None, new: dict[str, Any] | None, keys: list[str]
) -> None:
    before, after = ({PATH: text(side)} if side else {} for side in (old, new))
    made = plan(before, after)
    assert bare(made) == [RESTART]
    assert [key.key for key in made.changes[0].keys] == keys
    assert disruption(made) == "restart"
    assert made.stops_static_pods is (old is not None)
    assert act_steps(made) == (RestartStaticPod("kube-system/etcd", PATH),)
    assert PATH in describe(act_steps(made)[0])
    assert plan_from_dict(json.loads(json.dumps(plan_to_dict(made)))) == made
    assert "secret" not in json.dumps(plan_to_dict(made))


def test_only_images_are_shown() -> None:
    made = plan(
        {PATH: text(pod())}, {PATH: text(pod(image="etcd:2", command=["etcd", "--data-dir=/var/lib/etcd", "-x"]))}
    )
    assert [(key.before, key.after) for key in made.changes[0].keys] == [
        ("(not shown)", "(not shown)"),
        ('"etcd:1"', '"etcd:2"'),
    ]


def owned(image: str) -> bytes:
    document = pod(image=image)
    document["metadata"] |= {"namespace": "openshift-etcd", "labels": {"revision": "7"}}
    return text(document)


@pytest.mark.parametrize("new", [{PATH: owned("etcd:2")}, {}], ids=["changed", "removed"])
def test_a_pod_of_an_operator_is_only_watched(new: dict[str, bytes]) -> None:
    old = {PATH: owned("etcd:1"), "/etc/motd": b"1"}
    made = plan(old, {**new, "/etc/motd": b"2"})
    (found,) = [planned for planned in made.changes if planned.change.key == PATH]
    assert [action.type for action in found.actions] == [ActionType.NONE]
    assert "an operator writes it (its label revision)" in found.why
    assert not made.stops_static_pods
    assert write_steps(config(old), config({**new, "/etc/motd": b"2"})) == (WritePath("/etc/motd"),)


def test_a_pod_that_its_operator_has_left_is_written() -> None:
    new = {PATH: text(pod())}
    assert write_steps(config({PATH: owned("etcd:1")}), config(new)) == (WritePath(PATH),)


def test_an_added_manifest_that_replaces_a_pod_of_the_host_stops_it() -> None:
    host = {PATH: text(pod())}
    made = plan({}, {PATH: text(pod(image="etcd:2"))}, host)
    assert [key.key for key in made.changes[0].keys] == ["spec.containers[etcd].image"]
    assert made.stops_static_pods
    assert not plan({}, {f"{DIRECTORY}/b.yaml": text(pod("b"))}, host).stops_static_pods
    assert f"{DIRECTORY}/" in domains.reads(Sides())


def test_kubeadm_is_named() -> None:
    document = pod()
    document["metadata"]["annotations"] = {"kubeadm.kubernetes.io/etcd.advertise-client-urls": "https://10.0.0.1:2379"}
    host = HostView({PATH: text(document)})
    (found,) = domains.warnings(config(), config({PATH: text(pod(image="etcd:2"))}), host)
    assert (found.path, "kubeadm upgrade" in found.message) == (PATH, True)
    assert domains.warnings(config(), config({f"{DIRECTORY}/b.yaml": text(pod("b"))}), host) == ()
    assert domains.warnings(config({PATH: text(document)}), config({PATH: text(document)}), host) == ()


def test_comments_restart_nothing() -> None:
    made = plan({PATH: text(pod())}, {PATH: b"# comment\n" + text(pod())})
    assert bare(made) == [(ActionType.NONE, "", ())]


def test_static_pods_come_after_units_and_before_a_reboot() -> None:
    crio = {"/etc/containers/policy.json": b"{}"}
    made = plan({PATH: text(pod())}, {PATH: text(pod(image="etcd:2")), **crio})
    assert [action.type for action in made.actions] == [ActionType.RELOAD, ActionType.RESTART_STATIC_POD]
    made = plan({PATH: text(pod())}, {PATH: text(pod(image="etcd:2")), "/etc/unlisted": b""})
    assert [action.type for action in made.actions] == [
        *(ActionType.DRAIN, ActionType.RESTART_STATIC_POD, ActionType.REBOOT),
    ]
    assert made.stops_static_pods


OTHER = "/etc/pods/etcd.yaml"
ELSEWHERE = b"staticPodPath: /etc/pods/\n"
FLAG = b"[Service]\nExecStart=/usr/bin/kubelet --pod-manifest-path=/etc/pods\n"


@pytest.mark.parametrize(
    "host",
    [
        {"/var/lib/kubelet/config.yaml": ELSEWHERE},
        {"/etc/kubernetes/kubelet.conf": b"maxPods: 1", "/etc/kubernetes/kubelet.conf.d/1.conf": ELSEWHERE},
        {"/etc/systemd/system/kubelet.service": FLAG},
    ],
    ids=["file", "drop-in", "flag"],
)
def test_the_directory_of_the_kubelet_counts(host: dict[str, bytes]) -> None:
    made = plan({OTHER: text(pod())}, {OTHER: text(pod(image="etcd:2"))}, host)
    assert bare(made) == [(ActionType.RESTART_STATIC_POD, "kube-system/etcd", (OTHER,))]
    made = plan({PATH: text(pod())}, {PATH: text(pod(image="etcd:2"))}, host)
    assert [action.type for action in made.actions] == [ActionType.DRAIN, ActionType.REBOOT]
    sides = Sides(config({OTHER: text(pod())}), config({OTHER: b"{"}), HostView(host))
    assert [problem.path for problem in domains.host_problems(sides)] == [OTHER]


@pytest.mark.parametrize(
    ("keys", "flags", "seconds"),
    [
        ("", "", 20.0),
        ("fileCheckFrequency: 1m30s", "", 90.0),
        ("fileCheckFrequency: 1m30s", "--file-check-frequency=5s", 5.0),
        ("fileCheckFrequency: 0s", "", 20.0),
        ("fileCheckFrequency: often", "", 20.0),
        ("fileCheckFrequency: 24h", "", static_pods.MAX_LISTING),
    ],
)
def test_the_time_between_two_listings_is_that_of_the_kubelet(keys: str, flags: str, seconds: float) -> None:
    command = f"[Service]\nExecStart=/usr/bin/kubelet --config=/etc/k.conf {flags}\n"
    host = {"/etc/k.conf": keys.encode(), "/usr/lib/systemd/system/kubelet.service": command.encode()}
    assert static_pods.listing(host) == seconds


def test_a_change_of_the_directory_makes_manifests_unlisted() -> None:
    new = {"/etc/kubernetes/kubelet.conf": b"staticPodPath: /etc/pods"}
    made = plan({PATH: text(pod())}, {PATH: text(pod(image="etcd:2")), **new})
    assert [Action(action.type) for action in made.actions] == [DRAIN, REBOOT]


@pytest.mark.parametrize("path", [f"{DIRECTORY}/.hidden", f"{DIRECTORY}/deeper/etcd.yaml"])
def test_what_the_kubelet_does_not_read_is_unlisted(path: str) -> None:
    assert [action.type for action in plan({}, {path: text(pod())}).actions] == [ActionType.DRAIN, ActionType.REBOOT]


@pytest.mark.parametrize(
    ("old", "files", "words"),
    [
        (pod(), {PATH: b"{"}, "not valid"),
        (None, {PATH: b"some notes"}, "must be a Pod"),
        (pod(), {PATH: text(pod("other"))}, "renames the pod kube-system/etcd to kube-system/other"),
        (pod(), {PATH: text(pod(namespace="etcd"))}, "renames the pod"),
        (pod(), {PATH: text(pod(command=["etcd", "--data-dir=/srv"]))}, "data directory"),
        (pod(), {PATH: text(pod()), f"{PATH}.bak": text(pod())}, "the same pod as"),
    ],
)
def test_refused(old: dict[str, Any] | None, files: dict[str, bytes], words: str) -> None:
    found = domains.validate(config({PATH: text(old)} if old else {}), config(files))
    assert any(words in problem.message for problem in found), found


def test_good() -> None:
    assert domains.validate(config(), config({PATH: text(pod())})) == ()
    assert domains.validate(config({PATH: b"{"}), config({PATH: text(pod())})) == ()
    assert domains.validate(config({PATH: text(pod())}), config({PATH: text(pod(image="etcd:2"))})) == ()
    assert domains.validate(config(), config({f"{DIRECTORY}/.notes": b"notes"})) == ()
