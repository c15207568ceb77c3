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

# What `plan` printed when users first made the mistake.
PLACE = "refused, with the place"
LIST_PLACE = "refused, with the index of the entry only: no path and no line in a file of 1,900 lines"
UNKNOWN_KEYS = "refused, with four or five lines about unknown keys"
HEAVY = "refused, with the hint to install the host again"


def mistake(name: str, before: str, given: Spec | str | bytes, reason: str, words: list[str]) -> Any:
    """A row of docs/development/mistakes.md: what is given, the reason, and words that have to be there."""
    return pytest.param(name, given, reason, words, id=name, marks=pytest.mark.mistake(name, before))


MISTAKES = [
    mistake(
        "relative path", PLACE, document(entry("etc/a")), "InvalidInput", [f"{FILES}[0].path", "'etc/a'", "absolute"]
    ),
    mistake(
        "duplicate path",
        PLACE,
        document(entry("/etc/a"), entry("/etc/a")),
        "InvalidInput",
        [f"{FILES}[1].path", "two entries"],
    ),
    mistake(
        "file below a file", PLACE, document(entry("/etc/a"), entry("/etc/a/b")), "InvalidInput", [FILES, "/etc/a"]
    ),
    mistake(
        "unit and file of one name",
        PLACE,
        document(entry("/etc/systemd/system/a.service"), units=[{"name": "a.service", "contents": "[Unit]\n"}]),
        "InvalidInput",
        ["/etc/systemd/system/a.service"],
    ),
    mistake("/usr", PLACE, document(entry("/usr/lib/a")), "InvalidInput", [f"{FILES}[0].path", "read-only"]),
    mistake(
        "mode in quotes",
        'refused, with the index of the entry only: no path and no line in a file of 1,900 lines; "is a string"',
        document(entry("/etc/fine"), entry("/etc/chrony.conf", mode="0644")),
        "InvalidInput",
        [f"{FILES}[1].mode", "write 0644 without quotes", "420 in JSON", "(/etc/chrony.conf)"],
    ),
    mistake(
        "mode without the zero",
        LIST_PLACE,
        document(entry("/etc/a", mode=644)),
        "InvalidInput",
        ["invalid mode 01204", "(/etc/a)"],
    ),
    mistake(
        "unknown field",
        LIST_PLACE,
        document(entry("/etc/chrony.conf", permissions=1)),
        "InvalidInput",
        [f"{FILES}[0]: unknown key 'permissions'", "(/etc/chrony.conf)"],
    ),
    mistake(
        "a typing error in a field",
        LIST_PLACE,
        document(kernelArgument=["nosmt"]),
        "InvalidInput",
        ["spec: unknown key 'kernelArgument'; did you mean kernelArguments?"],
    ),
    mistake(
        "bad base64",
        "refused, with the character of the data",
        document({**entry("/etc/a"), "contents": {"source": "data:;base64,QUFB*UFB"}}),
        "InvalidInput",
        [f"{FILES}[0].contents.source", "base64", "(/etc/a)"],
    ),
    mistake(
        "http source",
        PLACE,
        document({**entry("/etc/a"), "contents": {"source": "http://example.com/a"}}),
        "InvalidInput",
        [f"{FILES}[0].contents.source", "(/etc/a)"],
    ),
    mistake(
        "wrong indent",
        "refused, with line and column, in the words of libyaml",
        f"{YAML}spec:\n  config:\n   a: 1\n  b: 2\n c: 3\n",
        "InvalidInput",
        ["line 9"],
    ),
    mistake(
        "tab",
        "refused, with line and column, in the words of libyaml",
        f"{YAML}spec:\n\tconfig: {{}}\n",
        "InvalidInput",
        ["line 6", "cannot start any token"],
    ),
    mistake("NUL", PLACE, b"kind: \0", "InvalidInput", ["NUL byte"]),
    mistake(
        "a Markdown block",
        "a character that cannot start any token",
        f"```yaml\n{YAML}```\n",
        "InvalidInput",
        ["Markdown"],
    ),
    mistake(
        "a web page",
        "must be an object, is a string",
        "<!DOCTYPE html><html><body>Not found</body></html>",
        "InvalidInput",
        ["web page", "address"],
    ),
    mistake(
        "a no-break space",
        "mapping values are not allowed in this context",
        f"{YAML}spec:\n  kernelType: default\n \u00a0fips: false\n",
        "InvalidInput",
        ["line 7", "no-break space"],
    ),
    mistake(
        "a no-break space before a key",
        "an unknown key with \\xa0",
        f"{YAML}spec:\n  kernelType: default\n  \u00a0fips: false\n",
        "InvalidInput",
        ["no-break space"],
    ),
    mistake(
        "a no-break space behind a colon",
        "must be an object, is a string",
        YAML.replace("name: b", "name:\u00a0b"),
        "InvalidInput",
        ["metadata: must be an object", "no-break space"],
    ),
    mistake("a line of text", "must be an object, is a string", "not found\n", "InvalidInput", ["apiVersion, kind"]),
    mistake("JSON of something else", UNKNOWN_KEYS, {"a": 1, "b": 2}, "NotMachineConfig", ["none of apiVersion, kind"]),
    mistake(
        "a policy",
        "an unknown kind",
        "apiVersion: operator.openshift.io/v1\nkind: MachineConfiguration\nspec: {nodeDisruptionPolicy: {}}\n",
        "NotMachineConfig",
        ["/etc/nodeagent/policy.yaml"],
    ),
    mistake(
        "a mode of Git",
        "invalid mode 0304444",
        document({**entry("/etc/a"), "mode": 100644}),
        "InvalidInput",
        [f"{FILES}[0].mode", "write 0644 (420 in JSON)"],
    ),
    mistake(
        "contents that are a text",
        PLACE,
        document({"path": "/etc/a", "contents": "text"}),
        "InvalidInput",
        [f"{FILES}[0].contents", "source: data:,text"],
    ),
    mistake(
        "a name that YAML reads as a boolean",
        "is missing, and must be a string",
        YAML.replace("name: b", "name: no"),
        "InvalidInput",
        ["metadata.name", "write it in quotes"],
    ),
    mistake(
        "Kustomization",
        UNKNOWN_KEYS,
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [a.yaml]\n",
        "NotMachineConfig",
        ["kubectl kustomize"],
    ),
    mistake("empty", "refused", "", "InvalidInput", ["is empty"]),
    mistake(
        "truncated JSON", "refused, with line and column", json.dumps(GOOD)[:-20], "InvalidInput", ["line 1 column"]
    ),
    mistake("two documents", "refused", f"{YAML}---\n{YAML}", "InvalidInput", ["line 5", "more than one document"]),
    mistake(
        "Ignition 3.9",
        "refused, with the known versions",
        document(ignition={"version": "3.9.0"}),
        "InvalidInput",
        ["unknown version '3.9.0'", "3.5.0"],
    ),
    mistake(
        "no version", "refused", document(ignition={}), "InvalidInput", ["spec.config.ignition.version", "is missing"]
    ),
    mistake(
        "wrong kind",
        "refused",
        {**GOOD, "kind": "ConfigMap"},
        "InvalidInput",
        ["kind", "must be MachineConfig, is 'ConfigMap'"],
    ),
    mistake("no kind", "refused", ODD, "InvalidInput", ["kind: must be MachineConfig"]),
    mistake("no name", "refused", {**GOOD, "metadata": {}}, "InvalidInput", ["metadata.name", "is missing"]),
    mistake(
        "Butane", UNKNOWN_KEYS, "variant: fcos\nversion: 1.5.0\n", "NotMachineConfig", ["Butane config", "run butane"]
    ),
    mistake(
        "Ignition in YAML",
        UNKNOWN_KEYS,
        "ignition:\n  version: 3.4.0\n",
        "NotMachineConfig",
        ["Ignition config", "as butane writes it"],
    ),
    mistake(
        "kubectl get -o yaml",
        UNKNOWN_KEYS,
        {"apiVersion": "v1", "kind": "List", "items": [GOOD, GOOD]},
        "NotMachineConfig",
        ["list of 2 objects", "take one"],
    ),
    mistake(
        "pull secret",
        "refused, with line and column",
        document(entry(PULL_SECRET, '{"auths": {]}')),
        "InvalidContent",
        [PULL_SECRET, "line 1 column"],
    ),
    mistake(
        "unit with a bad section",
        PLACE,
        document(units=[{"name": "a.service", "contents": "[Unit]\n[Service\nA=1\n"}]),
        "InvalidContent",
        ["/etc/systemd/system/a.service", "line 2"],
    ),
    mistake(
        "registries.conf",
        "refused, with line and column",
        document(entry("/etc/containers/registries.conf", "[[registry]\n")),
        "InvalidContent",
        ["not TOML", "line 1"],
    ),
    mistake(
        "certificate",
        "refused",
        document(entry("/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt", "garbage")),
        "InvalidContent",
        ["openshift-config-user-ca-bundle.crt"],
    ),
    mistake(
        "kubelet.conf",
        "accepted; found out after the drain and the reboot",
        document(entry("/etc/kubernetes/kubelet.conf", "kind: KubeletConfiguration\n\ta: 1\n")),
        "InvalidContent",
        ["/etc/kubernetes/kubelet.conf", "not YAML: line 2"],
    ),
    mistake(
        "a script with CR LF",
        "accepted",
        document(entry("/usr/local/bin/a.sh", "#!/bin/sh\r\ntrue\r\n")),
        "InvalidContent",
        ["Windows line endings"],
    ),
    mistake(
        "garbage ssh key",
        "accepted, which locks the admin out",
        document(keys=["ssh-ed25519 AAAAnotakey me"]),
        "InvalidContent",
        [f"{CORE}.sshAuthorizedKeys", "'me'", "not base64"],
    ),
    mistake(
        "password in the clear",
        "not tried",
        document(config={"passwd": {"users": [{"name": "core", "passwordHash": "hunter2Sekret"}]}}),
        "InvalidContent",
        [f"{CORE}.passwordHash", "is not a password hash", "mkpasswd"],
    ),
    mistake(
        "kernel argument with a line break",
        "not tried",
        document(kernelArguments=["nosmt\naudit=1"]),
        "InvalidInput",
        ["spec.kernelArguments[0]", "line break"],
    ),
    mistake(
        "empty kernel argument",
        "not tried",
        document(kernelArguments=[""]),
        "InvalidInput",
        ["spec.kernelArguments[0]", "empty"],
    ),
    mistake(
        "no ssh key at all",
        "refused; the hint was to install the host again",
        document(keys=[]),
        "Unreconcilable",
        [CORE, "locked out", "hint: give core an SSH key"],
    ),
    mistake(
        "system user",
        HEAVY,
        document(config={"passwd": {"users": [CORE_ENTRY, {"name": "bob", "system": True}]}}),
        "Unreconcilable",
        ["passwd.users[bob]", "hint: remove the change of passwd.users from the config"],
    ),
    mistake(
        "luks",
        HEAVY,
        document(storage={"luks": [{"name": "data", "device": "/dev/x"}]}),
        "Unreconcilable",
        ["storage.luks[data]", "hint: revert the change, or reinstall the host"],
    ),
    mistake(
        "hard link",
        HEAVY,
        document(storage={"links": [{"path": "/etc/l", "target": "/etc/a", "hard": True}]}),
        "Unreconcilable",
        ["storage.links[/etc/l]", "hint: remove the change of storage.links from the config"],
    ),
    mistake(
        "image by tag",
        "accepted by `plan`, refused by `apply`",
        document(osImageURL="quay.io/org/os:4.16"),
        "ImageNotPinned",
        ["osImageURL", "hint: append @sha256:"],
    ),
    mistake(
        "fips",
        "refused by `plan`; `explain fips` promised a drain and a reboot",
        document(fips=True),
        "Unreconcilable",
        ["spec.fips", "reinstall the host"],
    ),
]


def given(tmp_path: Path, wrong: Spec | str | bytes) -> list[str]:
    good, bad = tmp_path / "good.json", tmp_path / "FILE"
    good.write_text(json.dumps(GOOD))
    if isinstance(wrong, bytes):
        bad.write_bytes(wrong)
    else:
        bad.write_text(wrong if isinstance(wrong, str) else json.dumps(wrong))
    return ["plan", "--from", str(good), "--to", str(bad)]


@pytest.mark.finding(
    "configs: mistakes of authors",
    "Mistakes of people who write configs: exit status, reason, place and words of each.",
)
@pytest.mark.finding(
    "configs: modes and places",
    "A problem of an entry names its path, not only its index; a mode in quotes is called that.",
)
@pytest.mark.parametrize(("case", "wrong", "reason", "words"), MISTAKES)
def test_a_mistake_is_refused_with_its_place(
    case: str,
    wrong: Spec | str | bytes,
    reason: str,
    words: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    golden: Golden,
) -> None:
    status = main(given(tmp_path, wrong))
    printed = capsys.readouterr()
    assert status == (3 if reason == "Unreconcilable" else 2)
    assert printed.err.startswith(f"nodeagent: {reason}: ")
    for word in words:
        assert word in printed.err
    assert printed.out == ""
    assert "hunter2" not in printed.err
    golden("mistakes", case, printed.err.replace(f"{tmp_path}/", ""))


@pytest.mark.mistake(
    "the pull secret is removed",
    "accepted without a word",
    "`warning: /var/lib/kubelet/config.json is removed: images of private registries cannot be pulled without it`",
)
@pytest.mark.mistake(
    "CR LF in `chrony.conf`",
    "accepted without a word",
    "`warning: /etc/chrony.conf has Windows line endings (CR LF), which many programs take for text`",
)
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


@pytest.mark.finding(
    "commands: usage errors and hints", "Many equal problems are grouped; no problem is reported twice in one line."
)
@pytest.mark.mistake("one wrong replacement in 117 entries", "117 equal lines", "three of them, and `114 more`")
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
