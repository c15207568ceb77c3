# SPDX-License-Identifier: Apache-2.0
"""MachineConfigs that are parts of one: `nodeagent render`, and `nodeagent plan` with several files or a directory."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeagent.cli.main import main
from nodeagent.core.config.parse import parse
from nodeagent.settings.load import load
from tests.cli.conftest import machine_config, write
from tests.support.schemas import assert_fitting

SSH_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGKBGq0mTDtiMvTGAgKFZsdUfnrOuV9zQhZPm1k1l5aV ring"
ROLE = "machineconfiguration.openshift.io/role"


def fragment(name: str, files: dict[str, bytes], role: str = "worker", **spec: Any) -> dict[str, Any]:
    document = machine_config(name, files, **spec)
    document["metadata"]["labels"] = {ROLE: role}
    return document


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    """A directory with two fragments, one of this host alone, and files that are none."""
    directory = tmp_path / "pool"
    (directory / "host.d").mkdir(parents=True)
    write(directory / "b.json", fragment("99-chrony", {"/etc/chrony.conf": b"server b\n", "/etc/b": b"b"}))
    (directory / "a.yaml").write_text(yaml.dump(fragment("50-base", {"/etc/chrony.conf": b"server a\n"})))
    write(directory / "host.d/hostname.json", fragment("00-host", {"/etc/hostname": b"h1\n"}))
    (directory / ".a.yaml.swp").write_bytes(b"\0")
    (directory / "README.md").write_text("# ours\n")
    return directory


@pytest.fixture
def settings(pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The settings of a host whose desired config is ``pool``."""
    (directory := tmp_path / "config.d").mkdir()
    (directory / "10-test.yaml").write_text(f"desired_config: {pool}\n")
    monkeypatch.setattr(load, "__defaults__", ((str(directory),),))
    return directory


def test_a_directory_is_merged(pool: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", str(pool)]) == 0
    config = parse(capsys.readouterr().out.encode())
    assert {path: entry.content for path, entry in config.files.items()} == {
        "/etc/b": b"b",
        "/etc/chrony.conf": b"server b\n",
        "/etc/hostname": b"h1\n",
    }
    assert config.origins["file:/etc/chrony.conf"] == ("50-base", "99-chrony")


def test_files_give_what_their_directory_gives(pool: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The names of the MachineConfigs decide about the order, those of the files do not."""
    (pool / "host.d/hostname.json").unlink()
    assert main(["render", "--json", str(pool / "b.json"), str(pool / "a.yaml")]) == 0
    of_files = json.loads(capsys.readouterr().out)
    assert main(["render", "--json", str(pool)]) == 0
    assert json.loads(capsys.readouterr().out) == of_files


def test_a_plan_names_the_fragment_of_each_change(pool: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = write(pool.parent / "old.json", machine_config("old", {}))
    assert main(["plan", "--from", str(old), "--to", str(pool)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["from", "50-base,", "99-chrony"] in lines
    assert ["from", "00-host"] in lines
    # What left with a fragment is named after it, too.
    (pool / "b.json").unlink()
    both = pool.parent / "both"
    both.mkdir()
    for name in ("x", "y"):
        write(both / f"{name}.json", fragment(name, {f"/etc/{name}": b""}))
    assert main(["plan", "--from", str(both), "--to", str(both / "x.json"), "--json"]) == 0
    (change,) = json.loads(capsys.readouterr().out)["changes"]
    assert (change["key"], change["details"][0]) == ("/etc/y", {"what": "from", "before": "y"})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("variant: fcos\nversion: 1.5.0\n", "is a Butane config"),
        ("ignition: {version: 3.4.0}\n", "is an Ignition config"),
        ('{"ignition": {"version": "2.2.0"}}', "specification 2 is not read"),
        ("kind: MachineConfig\n", "metadata.name: is missing"),
    ],
)
def test_a_file_that_is_no_fragment_is_named(
    pool: Path, capsys: pytest.CaptureFixture[str], content: str, message: str
) -> None:
    (pool / "c.bu").write_text(content)
    assert main(["render", str(pool)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "c.bu" in error


def test_all_bad_files_are_named_at_once(pool: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("c.yaml", "d.yaml"):
        (pool / name).write_text("{}")
    assert main(["render", str(pool)]) == 2
    error = capsys.readouterr().err
    assert "c.yaml" in error
    assert "d.yaml" in error


def test_nothing_to_merge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", str(tmp_path)]) == 2
    assert "there is no MachineConfig to merge" in capsys.readouterr().err
    assert main(["render", "-"]) == 2
    assert "standard input cannot be merged" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("/etc/chrony.conf", ["50-base", "99-chrony"]),
        ("/etc/hostname", ["00-host"]),
        ("/etc/chron", []),
        ("kernelArguments", ["60-args"]),
        ("sshkey", ["60-args"]),
    ],
)
def test_explain_names_the_fragments_of_an_entry(
    pool: Path, settings: Path, capsys: pytest.CaptureFixture[str], target: str, names: list[str]
) -> None:
    users = {"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": [SSH_KEY]}]}}
    write(pool / "args.json", fragment("60-args", {}, kernelArguments=["nosmt"], ignition=users))
    assert main(["explain", target, "--json"]) == 0
    text = capsys.readouterr().out
    assert_fitting(text)
    assert json.loads(text)["from"] == names
    assert main(["explain", target]) == 0
    rows = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert (["from", f"{', '.join(names)} ({pool})"] in rows) is bool(names)


def test_explain_without_readable_fragments(
    pool: Path, settings: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The policy is explained anyway."""
    (pool / "c.yaml").write_text("{}")
    assert main(["explain", "/etc/chrony.conf"]) == 0
    shown = capsys.readouterr()
    assert "are not known: " in shown.err
    assert f"({pool})" not in shown.out
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert main(["explain", "/etc/chrony.conf"]) == 0
    assert capsys.readouterr().err == ""


def test_a_fragment_alone_is_named_as_such(pool: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Offline, as the daemon refuses it."""
    old = write(pool.parent / "old.json", machine_config("old", {"/etc/a": b"", "/etc/b": b"b"}))
    assert main(["plan", "--from", str(old), "--to", str(pool / "a.yaml")]) == 0
    words = "warning: 50-base removes 2 of 2 entries, and it looks like a part of a config, such as a cluster merges"
    assert words in capsys.readouterr().out
    assert main(["plan", "--from", str(old), "--to", str(pool / "a.yaml"), "--json"]) == 0
    assert [warning["path"] for warning in json.loads(capsys.readouterr().out)["warnings"]] == ["50-base"]
    assert main(["plan", "--from", str(old), "--to", str(pool)]) == 0
    assert "looks like" not in capsys.readouterr().out


def test_an_ignition_config_is_taken_as_it_is(pool: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Alone, and as a fragment, whose name is that of its file."""
    ignition = {
        "ignition": {"version": "3.6.0"},
        "storage": {"files": [{"path": "/etc/motd", "contents": {"source": "data:,hello"}}]},
        "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": [SSH_KEY]}]},
    }
    alone = write(pool / "my host.ign", ignition)
    assert main(["render", str(pool)]) == 0
    config = parse(capsys.readouterr().out.encode())
    assert config.origins["file:/etc/motd"] == ("my-host",)
    assert config.files["/etc/motd"].content == b"hello"
    empty = write(pool.parent / "empty.json", machine_config("empty", {}))
    assert main(["plan", "--from", str(empty), "--to", str(alone), "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert [change["key"] for change in plan["changes"]] == ["/etc/motd", "core"]
    assert plan["to"].startswith("ignition-")
    # The same text has the same name.
    assert main(["plan", "--from", str(alone), "--to", str(alone), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["from"], again["to"], again["changes"]) == (plan["to"], plan["to"], [])


def test_a_plan_names_the_arguments_that_leave(pool: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = write(pool.parent / "old.json", machine_config("old", {}, kernelArguments=["a", "quiet"]))
    less = {"ignition": {"version": "3.4.0"}, "kernelArguments": {"shouldNotExist": ["quiet", "rhgb"]}}
    new = write(pool.parent / "new.ign", less)
    for sides, signs in (((old, new), "before"), ((new, old), "after")):
        assert main(["plan", "--from", str(sides[0]), "--to", str(sides[1]), "--json"]) == 0
        (change,) = json.loads(capsys.readouterr().out)["changes"]
        arguments = [detail for detail in change["details"] if detail["what"] == "argument"]
        assert sorted(detail[signs] for detail in arguments) == ["a", "quiet", "rhgb"]
