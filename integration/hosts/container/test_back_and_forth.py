# SPDX-License-Identifier: Apache-2.0
"""For any two configs: there and back again is where we were, byte for byte, modes, owners and links included.

Every example goes A, B, A on the same host, and at the end everything is taken away again. The policy asks for no
action, so that an update takes a fraction of a second.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, seed, settings
from hypothesis import strategies as st

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.configs import SSH_KEY
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.container_host import Host
from integration.hosts.nodeagent_client import FileSpec, UnitSpec, machine_config
from integration.hosts.snapshot import Entry, difference

EXAMPLES = 5
# Some are there before we come: of the OS, with their own modes and owners, and a link. Some are below others.
SHIPPED = {"/etc/ring/shipped": 0o640, "/etc/ring/shipped.d/tight": 0o600}
PATHS = (
    *SHIPPED,
    "/etc/ring/link",
    "/etc/ring/new",
    "/etc/ring/a/b/c",
    "/etc/ring/a/b2",
    "/etc/ring/a",
    "/etc/ring/shipped.d/new",
    "/var/lib/ring/there/file",
)
UNITS = ("ring-one.service", "ring-two.timer", "kubelet.service", "flaky.service", "reloadable.service")
KEYS = (SSH_KEY, SSH_KEY.replace("GKBG", "GKBH"), SSH_KEY.replace("GKBG", "GKBI").replace("ring", "admin@example"))
POLICY = agent.policy(
    files={"/etc/ring": ["None"], "/var/lib/ring": ["None"]}, units={u: ["DaemonReload"] for u in UNITS}
)

contents = st.binary(max_size=40) | st.sampled_from([b"", b"x\n", b"\xff\0" * 100])
owners = st.sampled_from([None, "core", 0, 4])
file_specs = st.builds(FileSpec, contents, st.sampled_from([0o644, 0o600, 0o755, 0o444, 0o000]), owners, owners)
dropins = st.dictionaries(
    st.sampled_from(["10-a.conf", "20-b.conf"]), st.just("[Unit]\nDescription=ring\n"), max_size=2
)
enablement = st.sampled_from([None, True, False])


@st.composite
def unit_specs(draw: st.DrawFn, name: str) -> UnitSpec:
    if draw(st.booleans()) and draw(st.booleans()):
        return UnitSpec(mask=True, dropins=draw(dropins))
    text = None
    if name.startswith("ring-"):
        target = draw(st.sampled_from(["multi-user.target", "basic.target", "timers.target"]))
        body = "[Timer]\nOnCalendar=yearly\nUnit=ring-one.service\n"
        if name.endswith(".service"):
            body = "[Service]\nType=oneshot\nExecStart=/bin/true\n"
        comment = draw(st.sampled_from(["", "# other\n"]))
        text = f"{body}[Install]\nWantedBy={target}\n{comment}"
    return UnitSpec(text, draw(enablement), dropins=draw(dropins))


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    paths = draw(st.sets(st.sampled_from(PATHS), max_size=5))
    if "/etc/ring/a" in paths:
        paths = {path for path in paths if not path.startswith("/etc/ring/a/")}
    names = draw(st.sets(st.sampled_from(UNITS), max_size=3))
    return {
        "files": {path: draw(file_specs) for path in sorted(paths)},
        "units": {name: draw(unit_specs(name)) for name in sorted(names)},
        # A config without a key would lock core out, and is refused.
        "keys": draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=2, unique=True)),
    }


def update(host: Host, name: str, parts: dict[str, Any]) -> dict[str, Entry]:
    agent.write_desired(host, machine_config(name, **parts))
    agent.wait_done(host, name)
    return state(host)


def state(host: Host) -> dict[str, Entry]:
    return {**agent.managed(host), **host.snapshot("/var/lib/ring")}


@pytest.mark.long
@pytest.mark.slow
def test_there_and_back_again(make_node: HostMaker) -> None:
    host = make_node(files={agent.POLICY: POLICY}, settings={"actions": {"settle": 0}})
    for path, mode in SHIPPED.items():
        host.write(path, f"of the OS: {path}\n", mode=mode, owner="core" if mode == 0o600 else "root")
    host.run(["ln", "--symbolic", "shipped", "/etc/ring/link"])
    host.run(["mkdir", "--parents", "--mode=711", "/var/lib/ring/there"])
    nothing = update(host, "nothing", {"keys": KEYS[:1]})
    count = 0

    @seed(20_000)
    @settings(
        max_examples=EXAMPLES,
        phases=[Phase.explicit, Phase.generate],  # shrinking would take minutes, and the example is small enough
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @example(
        {"files": {"/etc/ring/a": FileSpec("a file")}, "units": {}, "keys": KEYS[:1]},
        {"files": {"/etc/ring/a/b/c": FileSpec("a directory")}, "units": {}, "keys": KEYS[:1]},
    )
    @given(configs(), configs())
    def there_and_back(a: dict[str, Any], b: dict[str, Any]) -> None:
        nonlocal count
        count += 1
        first = update(host, f"a{count}", a)
        update(host, f"b{count}", b)
        assert difference(first, update(host, f"a{count}", a)) == [], (a, b)

    there_and_back()
    assert difference(nothing, update(host, "nothing-again", {"keys": KEYS[:1]})) == []
    assert host.reboots == 0
