# SPDX-License-Identifier: Apache-2.0
"""The changes that admins make most, on one config: what `nodeagent plan` answers to each of them.

The answers are golden texts, of a machine with the recommended policy of the package; here is only which of them
disrupt how much. docs/development/changes.md is made of both and of the markers.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nodeagent import features
from nodeagent.cli import plan as command
from nodeagent.cli._plan_inputs import recommended_policy
from nodeagent.cli.main import main
from nodeagent.core.plan.plan import make_plan
from nodeagent.core.plan.policy import merge
from nodeagent.core.plan.sides import HostView
from nodeagent.domains import default_policy
from tests.cli.conftest import machine_config, write
from tests.core.validate.test_text_files import CERTIFICATE
from tests.support.golden import Golden
from tests.support.keys import ed25519, sha512

Spec = dict[str, Any]

REGISTRIES = "/etc/containers/registries.conf"
PULL_SECRET = "/var/lib/kubelet/config.json"
RECOMMENDED = Path(__file__).parents[2] / "systemd/usr/lib/nodeagent/policy-recommended.yaml"
USER_CA = "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt"
WIFI = "/etc/NetworkManager/system-connections/wifi.nmconnection"
KUBELET = "/etc/kubernetes/kubelet.conf"
POLICY_JSON = "/etc/containers/policy.json"
SIZES = "[Service]\nEnvironment=KUBELET_LOG_LEVEL=2\n"

FILES = {
    "/etc/chrony.conf": "server a.example iburst\nserver b.example iburst\ndriftfile /var/lib/chrony/drift\n",
    "/etc/sysctl.d/99-site.conf": "vm.swappiness = 10\n",
    WIFI: "[wifi-security]\nkey-mgmt=wpa-psk\npsk=hunter2hunter2\n",
    "/etc/systemd/journald.conf.d/50-site.conf": "[Journal]\nSystemMaxUse=1G\n",
    "/etc/ssh/sshd_config.d/40-site.conf": "MaxAuthTries 4\n",
    "/etc/motd.d/99-site": "Welcome\n",
    KUBELET: "maxPods: 110\n",
    REGISTRIES: 'unqualified-search-registries = ["a.example"]\n',
    PULL_SECRET: '{"auths": {"quay.io": {"auth": "aHVudGVyMjpodW50ZXIy"}}}\n',
    POLICY_JSON: '{"default": [{"type": "insecureAcceptAnything"}]}\n',
}
UNITS = [
    {"name": "kubelet.service", "contents": f"[Service]\nExecStart=/usr/bin/kubelet --config={KUBELET} --v=2\n",
     "dropins": [{"name": "10-log.conf", "contents": SIZES}]},
    {"name": "node-tuned.service", "enabled": True, "contents": "[Service]\nExecStart=/usr/bin/tuned\n"},
]  # fmt: skip
IMAGE = "quay.io/example/os@sha256:"


def base() -> Spec:
    users = [{"name": "core", "sshAuthorizedKeys": [ed25519("A")], "passwordHash": sha512("one")}]
    config = machine_config("rendered-worker-1", {path: text.encode() for path, text in FILES.items()})
    spec: Spec = config["spec"]
    spec["config"].update(passwd={"users": users}, systemd={"units": copy.deepcopy(UNITS)})
    next(f for f in files(spec) if f["path"].endswith(".nmconnection"))["mode"] = 0o600
    return {**spec, "kernelArguments": ["quiet", "audit=0"], "osImageURL": f"{IMAGE}{'a' * 64}"}


def files(spec: Spec) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = spec["config"]["storage"]["files"]
    return found


def content(path: str, text: str) -> Callable[[Spec], None]:
    def change(spec: Spec) -> None:
        (entry,) = files(machine_config("x", {path: text.encode()})["spec"])
        for file in files(spec):
            if file["path"] == path:
                file["contents"] = entry["contents"]
                return
        files(spec).append(entry)

    return change


def more(path: str, text: str) -> Callable[[Spec], None]:
    return content(path, FILES.get(path, "") + text)


def mode(spec: Spec) -> None:
    next(f for f in files(spec) if f["path"] == "/etc/motd.d/99-site")["mode"] = 0o600


def removed(spec: Spec) -> None:
    files(spec)[:] = [f for f in files(spec) if f["path"] != "/etc/motd.d/99-site"]


def unit(name: str, **changes: Any) -> Callable[[Spec], None]:
    def change(spec: Spec) -> None:
        units = spec["config"]["systemd"]["units"]
        known = [each for each in units if each["name"] == name]
        if not known:
            units.append({"name": name, **changes})
        for each in known:
            each.update(changes)

    return change


def user(**changes: Any) -> Callable[[Spec], None]:
    return lambda spec: spec["config"]["passwd"]["users"][0].update(changes)


def fields(**changes: Any) -> Callable[[Spec], None]:
    return lambda spec: spec.update(changes)


def several(*changes: Callable[[Spec], None]) -> Callable[[Spec], None]:
    def change(spec: Spec) -> None:
        for each in changes:
            each(spec)

    return change


def reordered(spec: Spec) -> None:
    files(spec).reverse()


MIRROR = '[[registry]]\nlocation = "b.example"\n[[registry.mirror]]\nlocation = "m.example"\n'
AUTHS = {"auths": {"quay.io": {"auth": "aHVudGVyMzpodW50ZXIz"}}}
REJECT = '{"default": [{"type": "reject"}]}\n'

# What `plan` printed when users first tried it.
PATH_ONLY = "Drain, Reboot for the path; no value, and no word about how to avoid it"
UNIT_ONLY = "Drain, Reboot for the unit; the same text for a new unit, a disabled one and a masked one"
ACTIONS = "the same actions, without values"
REASON = "the same actions and reason, without values"


def change(name: str, before: str, disruption: str, edit: Callable[[Spec], None]) -> Any:
    """A row of docs/development/changes.md. No disruption is a config that is refused."""
    return pytest.param(name, disruption, edit, id=name, marks=pytest.mark.change(name, before))


FOUR = several(
    more("/etc/chrony.conf", "rtcsync\n"),
    content(PULL_SECRET, json.dumps(AUTHS)),
    content(POLICY_JSON, REJECT),
    user(passwordHash=sha512("two")),
)
CHANGES = [
    change("chrony.conf", PATH_ONLY, "reboot", more("/etc/chrony.conf", "rtcsync\n")),
    change("sysctl", PATH_ONLY, "reboot", content("/etc/sysctl.d/99-site.conf", "vm.swappiness = 20\n")),
    change("NetworkManager profile", PATH_ONLY, "reboot", content(WIFI, FILES[WIFI].replace("hunter2", "hunter3"))),
    change(
        "journald.conf",
        PATH_ONLY,
        "reboot",
        more("/etc/systemd/journald.conf.d/50-site.conf", "MaxRetentionSec=1month\n"),
    ),
    change("sshd_config.d", PATH_ONLY, "reboot", content("/etc/ssh/sshd_config.d/40-site.conf", "MaxAuthTries 3\n")),
    change("motd, content", PATH_ONLY, "reboot", content("/etc/motd.d/99-site", "Welcome back\n")),
    change("motd, mode", "Drain, Reboot for the path; the same text as for a new content", "reboot", mode),
    change("motd, removed", PATH_ONLY, "reboot", removed),
    change("kubelet.conf", "Drain, Reboot for the path", "restart", content(KUBELET, "maxPods: 250\n")),
    change(
        "kubelet drop-in",
        "Drain, Reboot for the unit, without the name of the drop-in",
        "restart",
        unit("kubelet.service", dropins=[{"name": "10-log.conf", "contents": SIZES.replace("2", "4")}]),
    ),
    change(
        "kubelet.service",
        "Drain, Reboot for the unit",
        "restart",
        unit(
            "kubelet.service",
            contents=f"[Service]\nExecStart=/usr/bin/kubelet --config={KUBELET} --v=4\n",
        ),
    ),
    change(
        "new unit",
        UNIT_ONLY,
        "reboot",
        unit("site.service", enabled=True, contents="[Service]\nExecStart=/usr/bin/true\n"),
    ),
    change("disable a unit", UNIT_ONLY, "reboot", unit("node-tuned.service", enabled=False)),
    change("mask a unit", UNIT_ONLY, "reboot", unit("node-tuned.service", mask=True)),
    change("ssh key", ACTIONS, "none", user(sshAuthorizedKeys=[ed25519("B")])),
    change("pull secret", ACTIONS, "none", content(PULL_SECRET, json.dumps(AUTHS))),
    change(
        "registries.conf, digest mirror",
        REASON,
        "reload",
        more(REGISTRIES, MIRROR + 'pull-from-mirror = "digest-only"\n'),
    ),
    change("registries.conf, tag mirror", REASON, "drain", more(REGISTRIES, MIRROR)),
    change("user CA bundle", ACTIONS, "restart", content(USER_CA, CERTIFICATE)),
    change(
        "kernel arguments",
        "`kernelArguments:kernelArguments`, without the arguments",
        "reboot",
        fields(kernelArguments=["quiet", "audit=1"]),
    ),
    change(
        "OS image", "`osImageURL:osImageURL`, without the images", "reboot", fields(osImageURL=f"{IMAGE}{'b' * 64}")
    ),
    change(
        "kernel type and extension",
        "both fields, without values",
        "reboot",
        fields(kernelType="realtime", extensions=["usbguard"]),
    ),
    change("fips", "Unreconcilable, while `explain fips` promised a drain and a reboot", "", fields(fips=True)),
    change("four at once", "one Drain and one Reboot, for chrony.conf; no values", "reboot", FOUR),
    change("another order", "nothing to do", "none", reordered),
]


def plan_of(edit: Callable[[Spec], None], directory: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the words of a plan for a change of the config of these tests."""
    monkeypatch.setattr("nodeagent.cli._plan_inputs.RECOMMENDED", str(RECOMMENDED))
    spec = base()
    edit(spec)
    paths = []
    for number, each in enumerate((base(), spec), 1):
        config = machine_config(f"rendered-worker-{number}", {})
        paths.append(str(write(directory / f"{number}.json", {**config, "spec": each})))
    return ["plan", "--from", paths[0], "--to", paths[1]]


@pytest.mark.parametrize(("name", "disruption", "edit"), CHANGES)
def test_the_answer_has_the_values(
    name: str,
    disruption: str,
    edit: Callable[[Spec], None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    golden: Golden,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What a feature adds is in its own tests.
    monkeypatch.setattr(features, "NAMES", ())
    words = plan_of(edit, tmp_path, monkeypatch)
    code = main([*words, "--diff"])
    text = capsys.readouterr()
    shown = (text.out + text.err).replace(words[-1], "2.json")
    golden("changes", name, shown)
    assert code == (0 if disruption else 3)
    assert "hunter" not in shown
    assert "salt" not in shown
    assert "aHVudGVy" not in shown
    if disruption:
        assert main([*words, "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert answer["disruption"] == disruption
        assert all("details" in each for each in answer["changes"])


# What the kernel has before the change of sysctl.
HOST = HostView({"/proc/sys/vm/swappiness": b"10\n"})
# What a running host cannot take, and what the recommended policy leaves out with a reason.
STILL = ["NetworkManager profile", "kernel arguments", "OS image", "kernel type and extension"]


def test_reboots_with_the_recommended_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "load_policy", lambda _path: merge(default_policy(), recommended_policy()))
    monkeypatch.setattr(command, "make_plan", partial(make_plan, host=HOST))
    reboots = []
    for number, row in enumerate(CHANGES):
        name, disruption, edit = row.values
        (directory := tmp_path / str(number)).mkdir()
        words = plan_of(edit, directory, monkeypatch)
        code = main([*words, "--json"])
        text = capsys.readouterr().out
        assert code == (0 if disruption else 3)
        if code == 0 and json.loads(text)["disruption"] == "reboot":
            reboots.append(name)
    assert reboots == STILL
    assert sum(row.values[1] == "reboot" for row in CHANGES) == 15
