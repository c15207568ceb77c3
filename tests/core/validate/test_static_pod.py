# SPDX-License-Identifier: Apache-2.0
"""The manifest of a static pod: what the kubelet would refuse, and kill the running pod for, is found before."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from nodeagent.core.validate import static_pod
from nodeagent.core.validate.static_pod import check, is_visible, load, same_object

GOOD = b"""\
apiVersion: v1
kind: Pod
metadata:
  name: etcd
  namespace: kube-system
  labels: {component: etcd}
spec:
  hostNetwork: true
  containers:
  - name: etcd
    image: registry.example/etcd:3.6.8
    command: [etcd, "--name=one", "--data-dir=/var/lib/etcd"]
    env:
    - {name: ETCD_QUOTA, value: "8"}
    - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
    volumeMounts:
    - {name: data, mountPath: /var/lib/etcd}
  volumes:
  - name: data
    hostPath: {path: /var/lib/etcd, type: DirectoryOrCreate}
"""


def changed(**spec: Any) -> bytes:
    pod = yaml.safe_load(GOOD)
    pod["spec"] |= spec
    return yaml.safe_dump(pod).encode()


def container(**keys: Any) -> bytes:
    pod = yaml.safe_load(GOOD)
    pod["spec"]["containers"][0] |= keys
    return yaml.safe_dump(pod).encode()


def metadata(**keys: Any) -> bytes:
    pod = yaml.safe_load(GOOD)
    pod["metadata"] |= keys
    return yaml.safe_dump(pod).encode()


def volume(**keys: Any) -> bytes:
    return changed(volumes=[{"name": "data", **keys}])


@pytest.mark.parametrize(
    "content",
    [
        GOOD,
        b'{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": '
        b'[{"name": "c", "image": "i"}]}}',
        changed(somethingNew={"of": "a newer kubelet"}),
        changed(initContainers=[{"name": "first", "image": "i"}]),
        changed(terminationGracePeriodSeconds=0),
        volume(emptyDir={}),
        volume(projected={"sources": [{"downwardAPI": {"items": []}}]}),
    ],
)
def test_good(content: bytes) -> None:
    assert list(check(content)) == []
    assert load(content) is not None


@pytest.mark.parametrize(
    ("content", "key"),
    [
        (b"", "the manifest is empty"),
        (b"# only a comment\n", "empty"),
        (GOOD[: GOOD.index(b"  containers")], "spec.containers"),
        (GOOD + b"---\n" + GOOD, "more than one document"),
        (GOOD + b"kind: Pod\n", "twice"),
        (b"apiVersion: v1\nkind: PodList\nitems: []\n", "one Pod"),
        (b"apiVersion: apps/v1\nkind: Deployment\n", "kind Pod"),
        (b"- a\n- list\n", "must be a Pod"),
        (b"{", "not valid"),
        (b"\xff\xfe", "not UTF-8"),
        (b"apiVersion: v1\nkind: Pod\nmetadata: etcd\nspec: 1\n", "metadata must be a mapping"),
        (metadata(uid="0123"), "metadata.uid"),
        (metadata(name="Etcd"), "metadata.name"),
        (metadata(name="x" * 254), "metadata.name"),
        (metadata(namespace="kube/system"), "metadata.namespace"),
        (metadata(labels={"revision": 7}), "metadata.labels.revision"),
        (metadata(annotations="x"), "metadata.annotations"),
        (changed(containers=[]), "spec.containers"),
        (changed(containers={}), "spec.containers"),
        (changed(containers=["etcd"]), "spec.containers[0]"),
        (changed(ephemeralContainers=[{"name": "x"}]), "spec.ephemeralContainers"),
        (changed(serviceAccountName="etcd"), "spec.serviceAccountName"),
        (changed(resourceClaims=[{"name": "x"}]), "spec.resourceClaims"),
        (changed(imagePullSecrets=[{"name": "x"}]), "spec.imagePullSecrets"),
        (changed(terminationGracePeriodSeconds="30"), "spec.terminationGracePeriodSeconds"),
        (changed(hostNetwork="yes"), "spec.hostNetwork"),
        (changed(restartPolicy="Sometimes"), "spec.restartPolicy"),
        (changed(volumes=[{"name": "data"}, {"name": "data"}]), "occurs twice"),
        (changed(volumes=[{"name": 1}]), "spec.volumes[0].name"),
        (changed(volumes=[]), "volumeMounts[0].name"),
        (changed(volumes=7), "spec.volumes must be a list"),
        (volume(secret={"secretName": "x"}), "a Secret"),
        (volume(configMap={"name": "x"}), "a ConfigMap"),
        (volume(persistentVolumeClaim={"claimName": "x"}), "a PersistentVolumeClaim"),
        (volume(projected={"sources": [{"serviceAccountToken": {"path": "t"}}]}), "a ServiceAccount"),
        (volume(projected={"sources": [{"clusterTrustBundle": {"path": "t"}}]}), "a ClusterTrustBundle"),
        (volume(csi={"driver": "d", "nodePublishSecretRef": {"name": "x"}}), "a Secret"),
        (volume(hostPath={"path": "var/lib"}), "hostPath.path"),
        (volume(hostPath={"path": "/var/../etc"}), "hostPath.path"),
        (container(name="Etcd"), "spec.containers[0].name"),
        (container(image=""), "spec.containers[0].image"),
        (container(image=3.6), "spec.containers[0].image"),
        (container(image="--creds=x"), "spec.containers[0].image"),
        (container(image="etcd 3"), "spec.containers[0].image"),
        (container(imagePullPolicy="Sometimes"), "imagePullPolicy"),
        (container(command="etcd --name=one"), "command"),
        (container(args=["--quota", 8]), "args"),
        (container(env=[{"name": "A", "value": 1}]), "env[0].value"),
        (container(env=[{"name": "A", "value": True}]), "env[0].value"),
        (container(env=[{"value": "x"}]), "env[0].name"),
        (container(env={"A": "x"}), "env must be a list"),
        (container(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "x", "key": "k"}}}]), "a Secret"),
        (container(envFrom=[{"configMapRef": {"name": "x"}}]), "a ConfigMap"),
        (
            container(volumeMounts=[{"name": "data", "mountPath": "/a"}, {"name": "data", "mountPath": "/a"}]),
            "occurs twice",
        ),
        (container(volumeMounts=[{"name": "data"}]), "mountPath"),
        (changed(initContainers=[{"name": "etcd", "image": "i"}]), "spec.initContainers[0].name"),
        (b"#" * ((10 << 20) + 1), "bytes"),
    ],
)
def test_refused(content: bytes, key: str) -> None:
    found = list(check(content))
    assert any(key in message for message in found), found
    assert load(content) is None


@pytest.mark.parametrize("at", range(len(GOOD.splitlines())))
def test_no_crash_on_a_cut_manifest(at: int) -> None:
    """A file that is cut off may be a valid, shorter pod; here it is only read."""
    list(check(b"\n".join(GOOD.splitlines()[:at])))


def test_secrets_are_not_quoted() -> None:
    found = " ".join(check(container(env=[{"name": "TOKEN", "value": 314159}], command=[271828])))
    assert found
    assert "314159" not in found
    assert "271828" not in found


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (b"# a comment\n" + GOOD, True),
        (GOOD.replace(b"name: etcd", b'name: "etcd"', 1), True),
        (yaml.safe_dump(yaml.safe_load(GOOD), sort_keys=True).encode(), True),
        (GOOD.replace(b"3.6.8", b"3.6.9"), False),
        (GOOD.replace(b"--name=one", b"--name=two"), False),
        (changed(hostNetwork=True, terminationGracePeriodSeconds=1), False),
    ],
)
def test_same_object(other: bytes, same: bool) -> None:
    one, two = load(GOOD), load(other)
    assert one is not None
    assert two is not None
    assert same_object(one, two) is same


def test_what_it_contains() -> None:
    pod = load(GOOD)
    assert pod is not None
    assert pod.title == "kube-system/etcd"
    assert pod.images == {"registry.example/etcd:3.6.8": ""}
    assert pod.host_paths == {"/var/lib/etcd": "DirectoryOrCreate"}
    assert pod.grace_period == 30.0
    short = load(changed(terminationGracePeriodSeconds=0))
    assert short is not None
    assert short.grace_period == 1.0


@pytest.mark.parametrize(
    ("name", "visible"), [("etcd.yaml", True), ("etcd.yaml.bak", True), ("x~", True), (".etcd.yaml", False)]
)
def test_visible(name: str, visible: bool) -> None:
    assert is_visible(name) is visible


def test_a_manifest_of_which_the_kubelet_reads_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(static_pod, "MAX_BYTES", len(GOOD))
    assert list(check(GOOD)) == []
    assert list(check(GOOD + b"\n")) == [f"is {len(GOOD) + 1} bytes; the kubelet reads at most {len(GOOD)}"]
    assert load(GOOD + b"\n") is None
