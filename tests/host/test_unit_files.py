# SPDX-License-Identifier: Apache-2.0
"""Links and unit files of a host, compared with the real ``systemctl --root`` where there is one."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from nodeagent.core.config.file_tree import RegularFile, SymbolicLink
from nodeagent.core.config.machineconfig import MachineConfig, UnitEntry
from nodeagent.core.plan.deployment import Deployment
from nodeagent.core.plan.enablement.link_plan import UnitSteps, link_plan
from nodeagent.errors import AgentError
from nodeagent.host import unit_files
from nodeagent.host.fs.files import DiskFiles
from nodeagent.host.unit_files import HostUnitFiles

SYSTEMCTL = shutil.which("systemctl") or ""
UNITS = "etc/systemd/system"
RUN = "[Service]\nExecStart=/bin/true\n"
WANTED = f"{RUN}[Install]\nWantedBy=multi-user.target\n"


def tree(root: Path, files: dict[str, str]) -> HostUnitFiles:
    (root / UNITS).mkdir(parents=True)
    (root / "etc/machine-id").write_text("0123456789abcdef0123456789abcdef\n")
    for path, text in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("-> "):
            place.symlink_to(text[3:])
        else:
            place.write_text(text)
    return HostUnitFiles(str(root))


def planned(host: HostUnitFiles, **enabled: bool) -> dict[str, str]:
    """Return the links after a config with these entries, as the plan has them."""
    names = [name.replace("__", "@").replace("_", ".") for name in enabled]
    units = {name: UnitEntry(name, enabled=on) for name, on in zip(names, enabled.values(), strict=True)}
    facts = host.read(names, {})
    plan = link_plan(MachineConfig("x", units=units), UnitSteps(changed=names, new=names), facts, {}, {})
    after = {**facts.links, **plan.changes}
    return {path: target for path, target in after.items() if target is not None}


ALIKE = {
    "plain": ({f"{UNITS}/a.service": WANTED}, "a.service"),
    "of the OS": ({"usr/lib/systemd/system/a.service": WANTED}, "a.service"),
    "several": ({f"{UNITS}/a.service": f"{WANTED}WantedBy=b.target c.target\nRequiredBy=d.target\n"}, "a.service"),
    "an emptied list": ({f"{UNITS}/a.service": f"{WANTED}WantedBy=\nWantedBy=c.target\n"}, "a.service"),
    "an alias": ({f"{UNITS}/a.service": f"{WANTED}Alias=b.service c.service\n"}, "a.service"),
    "an alias of another type": ({f"{UNITS}/a.service": f"{WANTED}Alias=b.service\n"}, "a.service"),
    "also": (
        {
            f"{UNITS}/a.service": f"{WANTED}Also=a.socket\n",
            f"{UNITS}/a.socket": "[Socket]\nListenStream=/run/a\n[Install]\nWantedBy=sockets.target\nAlso=a.service\n",
        },
        "a.service",
    ),
    "also something that is missing": ({f"{UNITS}/a.service": f"{WANTED}Also=a.socket\n"}, "a.service"),
    "an instance": ({f"{UNITS}/a@.service": WANTED}, "a@b.service"),
    "an instance of the OS": ({"usr/lib/systemd/system/a@.service": WANTED}, "a@b.service"),
    "an instance with a file of its own": (
        {f"{UNITS}/a@.service": WANTED, f"{UNITS}/a@b.service": f"{RUN}[Install]\nWantedBy=b.target\n"},
        "a@b.service",
    ),
    "a default instance": ({f"{UNITS}/a@.service": f"{WANTED}DefaultInstance=d\n"}, "a@.service"),
    "another instance than the default": ({f"{UNITS}/a@.service": f"{WANTED}DefaultInstance=d\n"}, "a@b.service"),
    "specifiers": (
        {f"{UNITS}/a-b@.service": f"{RUN}[Install]\nWantedBy=%p.target x-%i.target %j.target %N.target\n"},
        "a-b@c.service",
    ),
    "specifiers of the OS and of root": (
        {
            "usr/lib/os-release": 'ID=anos\nVERSION_ID="1.2"\n',
            "etc/os-release": "-> ../usr/lib/os-release",
            f"{UNITS}/a.service": f"{RUN}[Install]\nWantedBy=%o.target %w.target %u-%U.target\n",
        },
        "a.service",
    ),
    "also an instance": (
        {f"{UNITS}/a@.service": f"{WANTED}Also=b@%i.service\n", f"{UNITS}/b@.service": WANTED},
        "a@c.service",
    ),
    "a drop-in": (
        {f"{UNITS}/a.service": RUN, f"{UNITS}/a.service.d/10.conf": "[Install]\nWantedBy=b.target\n"},
        "a.service",
    ),
    "a drop-in of a template": (
        {"usr/lib/systemd/system/a@.service": RUN, f"{UNITS}/a@.service.d/10.conf": "[Install]\nWantedBy=b.target\n"},
        "a@b.service",
    ),
    "drop-ins in order": (
        {
            "usr/lib/systemd/system/a.service": WANTED,
            "usr/lib/systemd/system/a.service.d/20.conf": "[Install]\nWantedBy=\nWantedBy=c.target\n",
            f"{UNITS}/a.service.d/10.conf": "[Install]\nWantedBy=b.target\n",
        },
        "a.service",
    ),
    "a drop-in replaced": (
        {
            "usr/lib/systemd/system/a.service": WANTED,
            "usr/lib/systemd/system/a.service.d/20.conf": "[Install]\nWantedBy=c.target\n",
            f"{UNITS}/a.service.d/20.conf": "[Install]\nWantedBy=b.target\n",
        },
        "a.service",
    ),
    "an alias of another unit is replaced": (
        {f"{UNITS}/a.service": f"{WANTED}Alias=bus.service\n", f"{UNITS}/bus.service": "-> b.service",
         f"{UNITS}/b.service": WANTED},
        "a.service",
    ),
    "default.target": (
        {f"{UNITS}/my.target": "[Install]\nAlias=default.target\n", f"{UNITS}/default.target": "-> x.target"},
        "my.target",
    ),
    "an alias that is a unit of the OS": (
        {f"{UNITS}/a.service": f"{WANTED}Alias=b.service\n", "usr/lib/systemd/system/b.service": WANTED},
        "a.service",
    ),
    "an alias that is a unit file": (
        {f"{UNITS}/a.service": f"{WANTED}Alias=b.service\n", f"{UNITS}/b.service": WANTED},
        "a.service",
    ),
    "a template as the alias of an instance": (
        {f"{UNITS}/a@.service": f"{RUN}[Install]\nAlias=b@.service\n"},
        "a@x.service",
    ),
    "a template that a template wants": (
        {f"{UNITS}/a@.service": f"{RUN}[Install]\nWantedBy=x@.target y.target\n"},
        "a@.service",
    ),
    "an instance that is a link to its template": (
        {f"{UNITS}/a@.service": WANTED, f"{UNITS}/a@1.service": "-> a@.service"},
        "a@1.service",
    ),
    "a chain of also": (
        {
            f"{UNITS}/a.service": f"{WANTED}Also=b.service\n",
            f"{UNITS}/b.service": f"{WANTED}Also=c.service\n",
            f"{UNITS}/c.service": f"{WANTED}Also=a.service\n",
        },
        "a.service",
    ),
    "also a masked unit": (
        {
            f"{UNITS}/a.service": f"{WANTED}Also=b.service\n",
            "usr/lib/systemd/system/b.service": WANTED,
            f"{UNITS}/b.service": "-> /dev/null",
        },
        "a.service",
    ),
    "drop-ins of a type and of a prefix": (
        {
            f"{UNITS}/a-b.service": RUN,
            f"{UNITS}/service.d/10.conf": "[Install]\nWantedBy=t.target\n",
            f"{UNITS}/a-.service.d/10.conf": "[Install]\nWantedBy=p.target\n",
        },
        "a-b.service",
    ),
    "quotes": ({f"{UNITS}/a.service": f"{RUN}[Install]\nWantedBy=\"b.target\" 'c.target' d.target\n"}, "a.service"),
    "a name with escapes": (
        {f"{UNITS}/var-my\\x2dd.mount": "[Mount]\nWhat=a\n[Install]\nWantedBy=local-fs.target\n"},
        "var-my\\x2dd.mount",
    ),
    "a continued line": (
        {f"{UNITS}/a.service": f"{RUN}[Install]\nWantedBy=b.target \\\n# x\n c.target\n"},
        "a.service",
    ),
    "nothing to install": ({f"{UNITS}/a.service": RUN}, "a.service"),
}  # fmt: skip


@pytest.mark.skipif(not SYSTEMCTL, reason="there is no systemctl")
@pytest.mark.parametrize(("files", "unit"), ALIKE.values(), ids=ALIKE)
def test_the_links_are_those_of_systemctl_enable(tmp_path: Path, files: dict[str, str], unit: str) -> None:
    mine, real = tree(tmp_path / "mine", files), tree(tmp_path / "real", files)
    subprocess.run([SYSTEMCTL, f"--root={tmp_path / 'real'}", "enable", "--force", "--quiet", unit], check=False)
    want = real.links()
    assert planned(mine, **{unit.replace(".", "_").replace("@", "__"): True}) == want


OFF = {
    "plain": (
        {f"{UNITS}/a.service": WANTED, f"{UNITS}/multi-user.target.wants/a.service": "-> ../a.service"},
        "a.service",
    ),
    "links of an admin": (
        {f"{UNITS}/a.service": WANTED, f"{UNITS}/x.target.wants/a.service": "-> /etc/systemd/system/a.service"},
        "a.service",
    ),
    "a template and its instances": (
        {f"{UNITS}/a@.service": WANTED, f"{UNITS}/x.target.wants/a@1.service": "-> /etc/systemd/system/a@.service"},
        "a@.service",
    ),
    "one instance": (
        {
            f"{UNITS}/a@.service": WANTED,
            f"{UNITS}/x.target.wants/a@1.service": "-> /etc/systemd/system/a@.service",
            f"{UNITS}/x.target.wants/a@2.service": "-> /etc/systemd/system/a@.service",
        },
        "a@1.service",
    ),
    "by an alias": (
        {
            f"{UNITS}/real.service": f"{WANTED}Alias=nick.service\n",
            f"{UNITS}/nick.service": "-> /etc/systemd/system/real.service",
            f"{UNITS}/multi-user.target.wants/real.service": "-> /etc/systemd/system/real.service",
        },
        "nick.service",
    ),
    "a link of another name": (
        {f"{UNITS}/a.service": WANTED, f"{UNITS}/x.target.wants/o.service": "-> ../a.service"},
        "a.service",
    ),
    "without a file": ({f"{UNITS}/x.target.requires/a.service": "-> ../a.service"}, "a.service"),
    "a default instance": (
        {
            f"{UNITS}/a@.service": f"{WANTED}DefaultInstance=1\n",
            f"{UNITS}/multi-user.target.wants/a@1.service": "-> ../a@.service",
            f"{UNITS}/multi-user.target.wants/a@2.service": "-> ../a@.service",
        },
        "a@.service",
    ),
    "also": (
        {
            f"{UNITS}/a.service": f"{WANTED}Also=a.socket\n",
            f"{UNITS}/a.socket": "[Socket]\nListenStream=/run/a\n[Install]\nWantedBy=sockets.target\n",
            f"{UNITS}/sockets.target.wants/a.socket": "-> /etc/systemd/system/a.socket",
        },
        "a.service",
    ),
}  # fmt: skip


@pytest.mark.skipif(not SYSTEMCTL, reason="there is no systemctl")
@pytest.mark.parametrize(("files", "unit"), OFF.values(), ids=OFF)
def test_the_links_that_go_are_those_of_systemctl_disable(tmp_path: Path, files: dict[str, str], unit: str) -> None:
    mine, real = tree(tmp_path / "mine", files), tree(tmp_path / "real", files)
    subprocess.run([SYSTEMCTL, f"--root={tmp_path / 'real'}", "disable", "--quiet", unit], check=False)
    want = real.links()
    assert planned(mine, **{unit.replace(".", "_").replace("@", "__"): False}) == want


def test_links_are_read_without_following_any(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/b.service").symlink_to("/usr/lib/b.service")
    host = tree(
        tmp_path / "root",
        {
            f"{UNITS}/default.target": "-> graphical.target",
            f"{UNITS}/masked.service": "-> /dev/null",
            f"{UNITS}/a.service": WANTED,
            f"{UNITS}/x.target.wants/a.service": "-> ../a.service",
            f"{UNITS}/x.target.wants/README": "no link",
            f"{UNITS}/x.target.upholds/a.service": "-> ../a.service",
            f"{UNITS}/a.service.d/10.conf": "[Service]\n",
            f"{UNITS}/notes/b.service": "-> /usr/lib/b.service",
            f"{UNITS}/y.target.wants": "-> ../../../../elsewhere",
            f"{UNITS}/f.target.wants": "no directory",
            f"{UNITS}/z.target.requires/nowhere.service": "-> /no/such.service",
        },
    )
    assert host.links() == {
        "default.target": "graphical.target",
        "masked.service": "/dev/null",
        "x.target.wants/a.service": "../a.service",
        "x.target.upholds/a.service": "../a.service",
        "z.target.requires/nowhere.service": "/no/such.service",
    }


def test_a_host_without_units_has_no_links(tmp_path: Path) -> None:
    assert HostUnitFiles(str(tmp_path)).links() == {}


def test_a_host_that_cannot_be_read_is_not_one_without_links(tmp_path: Path) -> None:
    with pytest.raises(AgentError) as caught:
        HostUnitFiles(str(tmp_path / "gone")).links()
    assert caught.value.reason == "PathChanged"


def test_too_many_links_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_files, "MAX_ENTRIES", 2)
    host = tree(tmp_path, {f"{UNITS}/x.target.wants/{n}.service": f"-> {n}.service" for n in range(3)})
    with pytest.raises(AgentError, match="more than 2 entries"):
        host.links()
    monkeypatch.setattr(unit_files, "MAX_ENTRIES", 3)
    assert len(host.links()) == 3


def test_units_that_only_the_new_files_name_are_read(tmp_path: Path) -> None:
    host = tree(tmp_path, {"usr/lib/systemd/system/b.socket": "[Install]\nWantedBy=sockets.target\n"})
    path = f"/{UNITS}/a.service"
    facts = asyncio.run(host.facts(["a.service"], {path: RegularFile(f"{WANTED}Also=b.socket\n".encode())}))
    assert list(facts.files) == ["/usr/lib/systemd/system/b.socket"]


def test_presets_are_read_in_their_order(tmp_path: Path) -> None:
    where = "systemd/system-preset"
    host = tree(
        tmp_path,
        {
            f"usr/lib/{where}/90-default.preset": "disable *\n",
            f"usr/lib/{where}/50-os.preset": "enable b.service\n",
            f"etc/{where}/50-os.preset": "enable a.service\n",
            f"etc/{where}/note.txt": "enable c.service\n",
        },
    )
    assert host.read(["a.service"], {}).presets == ["enable a.service\n", "disable *\n"]
    changes = {f"/etc/{where}/50-os.preset": None, f"/etc/{where}/10-own.preset": RegularFile(b"enable d.service\n")}
    after = ["enable d.service\n", "enable b.service\n", "disable *\n"]
    assert host.read(["a.service"], changes).presets == after


@pytest.mark.finding(
    "files: synced links",
    "Links of enabled, disabled and masked units are synced before the step counts as done.",
)
def test_links_are_durable_when_the_call_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = tree(tmp_path, {f"{UNITS}/a.service": WANTED})
    files, path = DiskFiles(str(tmp_path)), f"/{UNITS}/x.target.wants/a.service"
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    made = files.install(path, SymbolicLink("../a.service"))
    assert host.links() == {"x.target.wants/a.service": "../a.service"}
    assert {str(tmp_path / UNITS), str(tmp_path / UNITS / "x.target.wants")} <= set(synced)
    synced.clear()
    files.remove(path, made)
    assert host.links() == {}
    assert {str(tmp_path / UNITS), str(tmp_path / UNITS / "x.target.wants")} <= set(synced)
    assert not (tmp_path / UNITS / "x.target.wants").exists()


async def test_a_deployment_that_is_gone_ships_nothing_that_is_known(tmp_path: Path) -> None:
    deployment = Deployment("os-abc.0", "abc", "os", staged=True)
    with pytest.raises(AgentError, match="os/deploy/abc"):
        await HostUnitFiles(str(tmp_path)).shipped(deployment, ["new.service"])


@pytest.mark.finding(
    "units: unit files of a staged OS", "The unit files of a staged deployment are read in its own tree."
)
async def test_the_unit_files_of_another_deployment(tmp_path: Path) -> None:
    top = "ostree/deploy/os/deploy/abc.0"
    host = tree(
        tmp_path,
        {
            f"{top}/usr/lib/systemd/system/new.service": f"{WANTED}Also=new.socket\n",
            f"{top}/usr/lib/systemd/system/new.socket": "[Install]\nWantedBy=sockets.target\n",
            f"{top}/usr/etc/systemd/system/new.service.d/no.conf": "[Install]\nWantedBy=none.target\n",
            f"{top}/etc/systemd/system/new.service.d/no.conf": "[Install]\nWantedBy=none.target\n",
            f"{top}/usr/lib/systemd/system/evil.service": "-> /etc/machine-id",
            "usr/lib/systemd/system/new.service": "[Install]\nWantedBy=old.target\n",
        },
    )
    deployment = Deployment("os-abc.0", "abc", "os", staged=True)
    found = await host.shipped(deployment, ["new.service", "evil.service", "none.service"])
    assert set(found) == {f"/usr/lib/systemd/system/new.{kind}" for kind in ("service", "socket")} | {
        "/usr/lib/systemd/system/evil.service"
    }
    assert found["/usr/lib/systemd/system/new.service"] == RegularFile(f"{WANTED}Also=new.socket\n".encode())
    assert found["/usr/lib/systemd/system/evil.service"] == SymbolicLink("/etc/machine-id")
