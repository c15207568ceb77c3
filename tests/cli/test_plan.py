# SPDX-License-Identifier: Apache-2.0
"""`nodeagent plan` from the outside: files in, the contract's object or text out."""

from __future__ import annotations

import copy
import io
import json
from pathlib import Path
from typing import Any

import pytest

from nodeagent import features
from nodeagent.cli.main import main
from tests.cli.conftest import STRICTER_POLICY, machine_config, write
from tests.support.golden import Golden

GOLDEN = Path(__file__).parent / "golden"

REGISTRIES = b'unqualified-search-registries = ["a.example"]\n'
MORE_REGISTRIES = REGISTRIES + b'[[registry]]\nlocation = "b.example"\nmirror-by-digest-only = true\n'
OTHER_REGISTRIES = REGISTRIES + b'[[registry]]\nlocation = "b.example"\n'
USER_CA = "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt"

KUBELET_CONF = "/etc/kubernetes/kubelet.conf"
CRIO_DROP_IN = "/etc/crio/crio.conf.d/10-wipe"

POLICY = """
apiVersion: operator.openshift.io/v1
kind: MachineConfiguration
metadata: {name: cluster}
spec:
  logLevel: Normal
  nodeDisruptionPolicy:
    files:
    - path: /etc/chrony.conf
      actions:
      - {type: Drain}
      - {type: Restart, restart: {serviceName: chronyd.service}}
    units:
    - name: foo.service
      actions:
      - {type: DaemonReload}
      - {type: Reload, reload: {serviceName: foo.service}}
"""

CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing": ({"files": {"/etc/a": b"1"}}, {"files": {"/etc/a": b"1"}}),
    "registries-safe": (
        {"files": {"/etc/containers/registries.conf": REGISTRIES}},
        {"files": {"/etc/containers/registries.conf": MORE_REGISTRIES}},
    ),
    "registries-drain": (
        {"files": {"/etc/containers/registries.conf": REGISTRIES}},
        {"files": {"/etc/containers/registries.conf": OTHER_REGISTRIES}},
    ),
    "ca-and-policy": (
        {"files": {USER_CA: b"", "/etc/a": b"1"}},
        {"files": {"/etc/containers/policy.json": json.dumps(STRICTER_POLICY).encode(), "/etc/a": b"1"}},
    ),
    "user-policy": (
        {"files": {"/etc/chrony.conf": b"1"}},
        {
            "files": {"/etc/chrony.conf": b"2"},
            "ignition": {
                "systemd": {"units": [{"name": "foo.service", "contents": "[Service]\nExecStart=/bin/true\n"}]}
            },
        },
    ),
    "kubelet-keys": (
        {"files": {KUBELET_CONF: b"maxPods: 110\n"}},
        {"files": {KUBELET_CONF: b"maxPods: 250\ncpuManagerPolicy: static\nreservedSystemCPUs: '0'\n"}},
    ),
    "next-start": (
        {"files": {CRIO_DROP_IN: b"[crio]\ninternal_wipe = true\n"}},
        {"files": {CRIO_DROP_IN: b"[crio]\ninternal_wipe = false\n"}},
    ),
    "reboot": ({"files": {"/etc/a": b"1"}}, {"files": {"/etc/b": b"1"}, "kernelArguments": ["quiet"]}),
}


def plan_of(case: str, directory: Path) -> list[str]:
    """Return the words of a plan of these configs, with the policy above."""
    old, new = copy.deepcopy(CASES[case])
    a = write(directory / "a.json", machine_config("rendered-worker-a", old.pop("files"), **old))
    b = write(directory / "b.json", machine_config("rendered-worker-b", new.pop("files"), **new))
    policy = directory / "policy.yaml"
    policy.write_text(POLICY)
    return ["plan", "--from", str(a), "--to", str(b), "--policy", str(policy), "--json"]


@pytest.mark.parametrize("case", CASES)
def test_golden_json(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a feature adds is in its own tests.
    monkeypatch.setattr(features, "NAMES", ())
    assert main(plan_of(case, tmp_path)) == 0
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    golden = GOLDEN / f"{case}.json"
    if not golden.exists():  # to renew one: delete it and run this twice
        golden.write_text(json.dumps(json.loads(printed), indent=2) + "\n")
        pytest.fail(f"wrote {golden.name}: look at it")
    assert json.dumps(json.loads(printed), indent=2) + "\n" == golden.read_text()


def test_text(configs: Path, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    assert main(["plan", "--from", str(configs / "a.json"), "--to", str(configs / "b.json")]) == 0
    golden("plan", "changes", capsys.readouterr().out)


def test_keys_in_text(tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    texts = (b"maxPods: 110\n", b"maxPods: 250\ncpuManagerPolicy: static\nreservedSystemCPUs: '0'\n")
    paths = [
        str(write(tmp_path / f"{name}.json", machine_config(f"rendered-worker-{name}", {KUBELET_CONF: text})))
        for name, text in zip("ab", texts, strict=True)
    ]
    assert main(["plan", "--from", paths[0], "--to", paths[1]]) == 0
    golden("plan", "keys", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("name", "table", "key", "values"),
    [
        ("from-the-next-start", "", "", ()),
        # The restart of this update is the next start.
        ("with-a-restart", "crio.runtime", "pids_limit", (1024, 2048)),
    ],
)
def test_a_key_that_counts_from_the_next_start(
    name: str,
    table: str,
    key: str,
    values: tuple[int, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    golden: Golden,
) -> None:
    paths = []
    for number, wipe in enumerate(("true", "false")):
        more = f"[{table}]\n{key} = {values[number]}\n" if values else ""
        text = f"[crio]\ninternal_wipe = {wipe}\n{more}".encode()
        config = machine_config(f"rendered-worker-{'ab'[number]}", {CRIO_DROP_IN: text})
        paths.append(str(write(tmp_path / f"{number}.json", config)))
    assert main(["plan", "--from", paths[0], "--to", paths[1]]) == 0
    golden("plan", name, capsys.readouterr().out)


def test_nothing_to_do(configs: Path, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    assert main(["plan", "--from", str(configs / "a.json"), "--to", str(configs / "a.json")]) == 0
    golden("plan", "nothing to do", capsys.readouterr().out)


def test_standard_input(configs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BytesIO((configs / "b.json").read_bytes())

    monkeypatch.setattr("sys.stdin", Stdin)
    assert main(["plan", "--from", str(configs / "a.json"), "--to", "-", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["to"] == "rendered-worker-b"


def test_standard_input_can_be_read_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--from", "-", "--to", "-"]) == 2
    assert "only one input" in capsys.readouterr().err


def test_unreadable_inputs_are_reported_together(configs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = configs / "broken.json"
    broken.write_text('{"kind": ')
    assert main(["plan", "--from", str(configs / "missing"), "--to", str(broken), "--policy", str(configs)]) == 2
    error = capsys.readouterr().err
    assert "missing: No such file or directory" in error
    assert "broken.json is not valid JSON" in error
    assert "Is a directory" in error


def test_unreconcilable(configs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    disks = {"storage": {"disks": [{"device": "/dev/sda", "wipeTable": True}]}}
    target = write(configs / "c.json", machine_config("rendered-worker-c", {}, ignition=disks, fips=True))
    assert main(["plan", "--from", str(configs / "a.json"), "--to", str(target), "--json"]) == 3
    error = json.loads(capsys.readouterr().err)
    assert error["reason"] == "Unreconcilable"
    paths = [problem["path"] for problem in error["errors"]]
    assert "spec.fips" in paths
    assert any(path.startswith("spec.config.storage.disks") for path in paths)


def test_content_that_would_not_work(configs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = b'{"auths": {"quay.io": {"auth": "aHVudGVyMg=="}, "other.io": {"auth": "YTpi"}}}'
    files = {
        "/var/lib/kubelet/config.json": secret,
        "/etc/containers/registries.conf": b"[[registry]]\n[registries.search]\nregistries = ['x']\n",
        USER_CA: b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    }
    target = write(configs / "c.json", machine_config("rendered-worker-c", files))
    assert main(["plan", "--from", str(configs / "a.json"), "--to", str(target), "--json"]) == 2
    error = capsys.readouterr().err
    assert "hunter2" not in error
    assert "aHVudGVyMg" not in error
    assert json.loads(error)["reason"] == "InvalidContent"
    assert {problem["path"] for problem in json.loads(error)["errors"]} == set(files)


@pytest.mark.finding("secrets: names in errors", "An error has the names of the command line and of the config, whole.")
def test_an_error_names_files_whole(configs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = configs / "Deployments/Cluster-EU-West/machineconfigs-of-the-Second-Site"
    directory.mkdir(parents=True)
    path = "/etc/pki/ca-trust/source/anchors/ACME_Corporation_Internal_Issuing_CA_2024_G2.crt"
    target = write(directory / "99-worker-chrony.yaml", machine_config("longca", {path: b"not a cert"}))
    words = ["plan", "--from", str(configs / "a.json"), "--to", str(target)]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert path in error.splitlines()[0]
    assert "[redacted]" not in error
    target.write_text("{")
    assert main(words) == 2
    assert str(target) in capsys.readouterr().err


def test_only_what_changes_is_checked(configs: Path) -> None:
    bad = {"/etc/containers/policy.json": b"not json"}
    a = write(configs / "c.json", machine_config("rendered-worker-c", bad))
    b = write(configs / "d.json", machine_config("rendered-worker-d", {**bad, "/etc/x": b""}))
    assert main(["plan", "--from", str(a), "--to", str(b)]) == 0


def test_a_bad_policy_is_refused(configs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = write(configs / "policy.json", {"files": [{"path": "etc", "actions": [{"type": "Special"}]}]})
    words = ["plan", "--from", str(configs / "a.json"), "--to", str(configs / "b.json"), "--policy", str(policy)]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert "files[0].path: must be absolute" in error
    assert "files[0].actions[0].type: Special is reserved" in error


# As a rendered config of a control plane: most of it are manifests, scripts and certificates of static pods.
LARGE = {
    **{f"/etc/kubernetes/static-pod-resources/{pod}/{index}.yaml": 266 for pod in "abcdefg" for index in range(38)},
    **{f"/usr/local/bin/script-{index}.sh": 15 for index in range(15)},
    **{f"/etc/NetworkManager/{place}/{index}.conf": 8 for place in ("conf.d", "dispatcher.d") for index in range(4)},
    **{f"/etc/systemd/system.conf.d/{index}.conf": 5 for index in range(5)},
    "/etc/kubernetes/kubelet.conf": 1,
    "/etc/crio/crio.conf.d/00-default": 1,
    "/etc/containers/registries.conf": 1,
    "/etc/containers/policy.json": 1,
    "/etc/chrony.conf": 1,
    "/etc/sysctl.d/inotify.conf": 1,
}
SCREEN = 24


@pytest.mark.finding(
    "users: plans of large configs", "A plan of 300 files fits on two screens, and its summary comes last."
)
def test_a_plan_of_300_files(tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    text = {
        "/etc/kubernetes/kubelet.conf": b"maxPods: 250\nclusterDNS: [172.30.0.10]\n",
        "/etc/crio/crio.conf.d/00-default": b"[crio.runtime]\npids_limit = 0\n",
        "/etc/containers/registries.conf": REGISTRIES,
        "/etc/containers/policy.json": json.dumps(STRICTER_POLICY).encode(),
        "/etc/sysctl.d/inotify.conf": b"fs.inotify.max_user_watches = 65536\n",
    }
    files = {path: text.get(path, b"# a line\n# another\n") for path in LARGE}
    units = [{"name": f"node-{index}.service", "enabled": True, "contents": "[Service]\nExecStart=/bin/true\n"}
             for index in range(30)]  # fmt: skip
    empty = write(tmp_path / "a.json", machine_config("nothing", {}))
    new = machine_config("rendered-worker-0a", files, ignition={"systemd": {"units": units}})
    words = ["plan", "--from", str(empty), "--to", str(write(tmp_path / "b.json", new))]
    assert (len(files), main(words)) == (300, 0)
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) <= 2 * SCREEN
    assert [line.partition(":")[0] for line in shown.splitlines()[-2:]] == ["entries", "disruption"]
    golden("plan", "300 files", shown)
    assert main([*words, "--summary"]) == 0
    golden("plan", "300 files, summary", capsys.readouterr().out)
    assert main([*words, "--all"]) == 0
    assert capsys.readouterr().out.count("added   ") > 300
