# SPDX-License-Identifier: Apache-2.0
"""Mistakes of people who write configs: what `nodeagent plan` reports for each.

Left to the host, which has the programs: sshd, sudoers, units by systemd-analyze, drop-ins of unknown units, owners.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from nodeagent.cli.main import main
from tests.support.golden import Golden
from tests.support.keys import ed25519

Spec = dict[str, Any]
PULL_SECRET = "/var/lib/kubelet/config.json"
CREDENTIALS = {"auths": {"quay.io": {"auth": base64.b64encode(b"robot:secret").decode()}}}

CORE_ENTRY = {"name": "core", "sshAuthorizedKeys": [ed25519("me")]}


def entry(path: str, content: str | bytes = "", **more: Any) -> dict[str, Any]:
    data = content.encode() if isinstance(content, str) else content
    source = f"data:;base64,{base64.b64encode(data).decode()}"
    return {"path": path, "mode": 0o644, "contents": {"source": source}, **more}


def document(
    *files: dict[str, Any], units: list[Any] | None = None, keys: list[str] | None = None, **changes: Any
) -> Spec:
    """A config as a cluster renders it; ``changes`` are of the Ignition config, "ignition" and "spec" among them."""
    config: Spec = {
        "ignition": changes.pop("ignition", {"version": "3.4.0"}),
        "storage": {"files": list(files), **changes.pop("storage", {})},
        "systemd": {"units": units or []},
        "passwd": {"users": [CORE_ENTRY if keys is None else {"name": "core", "sshAuthorizedKeys": keys}]},
    }
    return {
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": "rendered-worker-b"},
        "spec": {"config": {**config, **changes.pop("config", {})}, **changes},
    }


GOOD = document(entry(PULL_SECRET, json.dumps(CREDENTIALS)))
YAML = "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata:\n  name: b\n"
FILES = "spec.config.storage.files"
CORE = "spec.config.passwd.users[core]"
ODD = {key: value for key, value in GOOD.items() if key != "kind"}

# What is given, the reason, and words that have to be there.
MISTAKES: dict[str, tuple[Spec | str | bytes, str, list[str]]] = {
    "relative path": (document(entry("etc/a")), "InvalidInput", [f"{FILES}[0].path", "'etc/a'", "absolute"]),
    "duplicate path": (document(entry("/etc/a"), entry("/etc/a")), "InvalidInput", [f"{FILES}[1].path", "two entries"]),
    "file below a file": (document(entry("/etc/a"), entry("/etc/a/b")), "InvalidInput", [FILES, "/etc/a"]),
    "unit and file of one name": (
        document(entry("/etc/systemd/system/a.service"), units=[{"name": "a.service", "contents": "[Unit]\n"}]),
        "InvalidInput",
        ["/etc/systemd/system/a.service"],
    ),
    "/usr": (document(entry("/usr/lib/a")), "InvalidInput", [f"{FILES}[0].path", "read-only"]),
    "mode in quotes": (
        document(entry("/etc/fine"), entry("/etc/chrony.conf", mode="0644")),
        "InvalidInput",
        [f"{FILES}[1].mode", "write 0644 without quotes", "420 in JSON", "(/etc/chrony.conf)"],
    ),
    "mode without the zero": (document(entry("/etc/a", mode=644)), "InvalidInput", ["invalid mode 01204", "(/etc/a)"]),
    "unknown field": (
        document(entry("/etc/chrony.conf", permissions=1)),
        "InvalidInput",
        [f"{FILES}[0]: unknown key 'permissions'", "(/etc/chrony.conf)"],
    ),
    "a typing error in a field": (
        document(kernelArgument=["nosmt"]),
        "InvalidInput",
        ["spec: unknown key 'kernelArgument'; did you mean kernelArguments?"],
    ),
    "bad base64": (
        document({**entry("/etc/a"), "contents": {"source": "data:;base64,QUFB*UFB"}}),
        "InvalidInput",
        [f"{FILES}[0].contents.source", "base64", "(/etc/a)"],
    ),
    "http source": (
        document({**entry("/etc/a"), "contents": {"source": "http://example.com/a"}}),
        "InvalidInput",
        [f"{FILES}[0].contents.source", "(/etc/a)"],
    ),
    "wrong indent": (f"{YAML}spec:\n  config:\n   a: 1\n  b: 2\n c: 3\n", "InvalidInput", ["line 9"]),
    "tab": (f"{YAML}spec:\n\tconfig: {{}}\n", "InvalidInput", ["line 6", "cannot start any token"]),
    "NUL": (b"kind: \0", "InvalidInput", ["NUL byte"]),
    "empty": ("", "InvalidInput", ["is empty"]),
    "truncated JSON": (json.dumps(GOOD)[:-20], "InvalidInput", ["line 1 column"]),
    "two documents": (f"{YAML}---\n{YAML}", "InvalidInput", ["line 5", "more than one document"]),
    "Ignition 3.9": (document(ignition={"version": "3.9.0"}), "InvalidInput", ["unknown version '3.9.0'", "3.5.0"]),
    "no version": (document(ignition={}), "InvalidInput", ["spec.config.ignition.version", "is missing"]),
    "wrong kind": ({**GOOD, "kind": "ConfigMap"}, "InvalidInput", ["kind", "must be MachineConfig, is 'ConfigMap'"]),
    "no kind": (ODD, "InvalidInput", ["kind: must be MachineConfig"]),
    "no name": ({**GOOD, "metadata": {}}, "InvalidInput", ["metadata.name", "is missing"]),
    "Butane": ("variant: fcos\nversion: 1.5.0\n", "NotMachineConfig", ["Butane config", "run butane"]),
    "bare Ignition": (GOOD["spec"]["config"], "NotMachineConfig", ["Ignition config", "below spec.config"]),
    "kubectl get -o yaml": (
        {"apiVersion": "v1", "kind": "List", "items": [GOOD, GOOD]},
        "NotMachineConfig",
        ["list of 2 objects", "take one"],
    ),
    "pull secret": (document(entry(PULL_SECRET, '{"auths": {]}')), "InvalidContent", [PULL_SECRET, "line 1 column"]),
    "unit with a bad section": (
        document(units=[{"name": "a.service", "contents": "[Unit]\n[Service\nA=1\n"}]),
        "InvalidContent",
        ["/etc/systemd/system/a.service", "line 2"],
    ),
    "registries.conf": (
        document(entry("/etc/containers/registries.conf", "[[registry]\n")), "InvalidContent", ["not TOML", "line 1"],
    ),
    "certificate": (
        document(entry("/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt", "garbage")),
        "InvalidContent",
        ["openshift-config-user-ca-bundle.crt"],
    ),
    "kubelet.conf": (
        document(entry("/etc/kubernetes/kubelet.conf", "kind: KubeletConfiguration\n\ta: 1\n")),
        "InvalidContent",
        ["/etc/kubernetes/kubelet.conf", "not YAML: line 2"],
    ),
    "a script with CR LF": (
        document(entry("/usr/local/bin/a.sh", "#!/bin/sh\r\ntrue\r\n")), "InvalidContent", ["Windows line endings"],
    ),
    "garbage ssh key": (
        document(keys=["ssh-ed25519 AAAAnotakey me"]),
        "InvalidContent",
        [f"{CORE}.sshAuthorizedKeys", "'me'", "not base64"],
    ),
    "password in the clear": (
        document(config={"passwd": {"users": [{"name": "core", "passwordHash": "hunter2Sekret"}]}}),
        "InvalidContent",
        [f"{CORE}.passwordHash", "is not a password hash", "mkpasswd"],
    ),
    "kernel argument with a line break": (
        document(kernelArguments=["nosmt\naudit=1"]), "InvalidInput", ["spec.kernelArguments[0]", "line break"],
    ),
    "empty kernel argument": (document(kernelArguments=[""]), "InvalidInput", ["spec.kernelArguments[0]", "empty"]),
    "no ssh key at all": (document(keys=[]), "Unreconcilable", [CORE, "locked out", "hint: give core an SSH key"]),
    "new user": (
        document(config={"passwd": {"users": [CORE_ENTRY, {"name": "bob"}]}}),
        "Unreconcilable",
        ["passwd.users[bob]", "hint: remove the change of passwd.users from the config"],
    ),
    "luks": (
        document(storage={"luks": [{"name": "data", "device": "/dev/x"}]}),
        "Unreconcilable",
        ["storage.luks[data]", "hint: revert the change, or reinstall the host"],
    ),
    "link": (
        document(storage={"links": [{"path": "/etc/l", "target": "/etc/a"}]}),
        "Unreconcilable",
        ["storage.links[/etc/l]", "hint: remove the change of storage.links from the config"],
    ),
    "image by tag": (
        document(osImageURL="quay.io/org/os:4.16"),
        "ImageNotPinned",
        ["osImageURL", "hint: append @sha256:"],
    ),
    "fips": (document(fips=True), "Unreconcilable", ["spec.fips", "reinstall the host"]),
}  # fmt: skip


def given(tmp_path: Path, wrong: Spec | str | bytes) -> list[str]:
    good, bad = tmp_path / "good.json", tmp_path / "FILE"
    good.write_text(json.dumps(GOOD))
    if isinstance(wrong, bytes):
        bad.write_bytes(wrong)
    else:
        bad.write_text(wrong if isinstance(wrong, str) else json.dumps(wrong))
    return ["plan", "--from", str(good), "--to", str(bad)]


@pytest.mark.finding("E", "Mistakes of people who write configs: exit status, reason, place and words of each.")
@pytest.mark.finding(
    "E-mode",
    "A problem of an entry names its path, not only its index; a mode in quotes is called that.",
)
@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_refused_with_its_place(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    wrong, reason, words = MISTAKES[case]
    status = main(given(tmp_path, wrong))
    printed = capsys.readouterr()
    assert status == (3 if reason == "Unreconcilable" else 2)
    assert printed.err.startswith(f"nodeagent: {reason}: ")
    for word in words:
        assert word in printed.err
    assert printed.out == ""
    assert "hunter2" not in printed.err
    golden("mistakes", case, printed.err.replace(f"{tmp_path}/", ""))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (document(), f"warning: {PULL_SECRET} is removed: images of private registries cannot be pulled without it"),
        (
            document(*GOOD["spec"]["config"]["storage"]["files"], entry("/etc/chrony.conf", "pool x\r\nmakestep\r\n")),
            "warning: /etc/chrony.conf has Windows line endings (CR LF), which many programs take for text",
        ),
    ],
    ids=["pull secret removed", "CR LF"],
)
def test_a_likely_mistake_is_a_warning(
    changed: Spec, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = given(tmp_path, changed)
    assert main(words) == 0
    assert said in capsys.readouterr().out
    assert main([*words, "--json"]) == 0
    (warning,) = json.loads(capsys.readouterr().out)["warnings"]
    assert said == f"warning: {warning['path']} {warning['message']}"


@pytest.mark.finding("A7", "Many equal problems are grouped; no problem is reported twice in one line.")
def test_many_alike_are_grouped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One replacement in an editor that went wrong."""
    wrong = document(*(entry(f"/etc/f{index}", mode="0644") for index in range(117)), entry("/usr/x"))
    assert main(given(tmp_path, wrong)) == 2
    printed = capsys.readouterr().err
    assert printed.count("must be an integer") == 1 + 3 + 1  # the message, three of them, and the rest
    assert (
        f"{FILES}[*].mode: must be an integer, is a string: write 0644 without quotes (420 in JSON): 114 more"
        in printed
    )
    assert f"{FILES}[117].path" in printed
