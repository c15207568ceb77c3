# SPDX-License-Identifier: Apache-2.0
"""The manual and the completion know every command and option of the parser."""

from __future__ import annotations

import argparse
import re
import runpy
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.cli.main import build_parser
from nodeagent.core.plan.policy_parse import parse_policy
from nodeagent.update.states import Phase
from tests.support import removed
from tests.support.needs import needs

PACKAGING = Path(__file__).parents[2] / "packaging"
MANUAL = PACKAGING / "man/nodeagent.8"


def commands(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    yield name, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, sub in action.choices.items():
                yield from commands(sub, f"{name} {word}".strip())


COMMANDS = [(name, parser) for name, parser in commands(build_parser()) if name]


def section(title: str) -> str:
    """A section of the manual as a reader sees its words."""
    text = re.search(rf"^\.SH {title}\n(.*?)(?=^\.SH|\Z)", MANUAL.read_text(), re.M | re.S)
    assert text is not None
    words = re.sub(r"\\f[RBIP]", "", text.group(1).replace("\\-", "-"))
    return re.sub(r'^\.[A-Z]{1,2} |"', "", words, flags=re.M)


@pytest.mark.parametrize(("name", "parser"), COMMANDS, ids=[name for name, _ in COMMANDS])
def test_the_manual_has_every_command_and_option(name: str, parser: argparse.ArgumentParser) -> None:
    text = section("COMMANDS")
    leaf = not any(isinstance(action, argparse._SubParsersAction) for action in parser._actions)
    if leaf:
        assert re.search(rf"^{name}\b", text, re.M)
    options = {option for action in parser._actions for option in action.option_strings}
    for option in options - {"--json", "-h", "--help"}:
        assert option in text, option
    for option in options:
        assert option in section("OPTIONS") + text


def test_the_manual_has_the_options_of_the_program() -> None:
    for action in build_parser()._actions:
        assert all(option in section("OPTIONS") for option in action.option_strings)


def test_the_manual_has_no_option_that_is_gone() -> None:
    parsers = [build_parser(), *(parser for _, parser in COMMANDS)]
    known = {option for parser in parsers for action in parser._actions for option in action.option_strings}
    mentioned = set(
        re.findall(r"(?<![\w-])--[a-z][a-z-]+", section("SYNOPSIS") + section("COMMANDS") + section("OPTIONS"))
    )
    assert mentioned <= known | removed.words("option")


@needs("groff")
def test_the_manual_has_the_phases_and_a_policy_for_hosts_without_a_network() -> None:
    text = MANUAL.read_text()
    listed = text.partition(".SH PHASES")[2].partition(".SH POLICY")[0]
    assert {*re.findall(r"^\.B (\w+)$", listed, re.MULTILINE)} == {*Phase}
    example = text.partition(".nf\n")[2].partition(".fi\n")[0].replace("\\-", "-")
    assert {*parse_policy(example.encode()).files} == {"/etc/chrony.conf"}


def test_groff_has_nothing_against_it() -> None:
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-z", str(MANUAL)], capture_output=True, text=True, timeout=20, check=True
    )
    assert done.stderr == ""


@pytest.fixture(scope="module")
def completion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("root")
    runpy.run_path(str(PACKAGING / "completion.py"))["write"](root)
    return root


@pytest.mark.parametrize("path", ["bash-completion/completions/nodeagent", "zsh/site-functions/_nodeagent"])
def test_completion_knows_every_command(completion: Path, path: str) -> None:
    text = (completion / "usr/share" / path).read_text()
    for name, parser in COMMANDS:
        assert name.split()[-1] in text
        assert all(option in text for action in parser._actions for option in action.option_strings)


def test_fish_completion_knows_every_command(completion: Path) -> None:
    text = (completion / "usr/share/fish/vendor_completions.d/nodeagent.fish").read_text()
    assert all(name.split()[-1] in text for name, _ in COMMANDS)


UPDATES = '{"updates": [{"update_id": "6d89", "to_name": "w-2"}, {"update_id": "aaaa", "to_name": "w-1"}]}'
STAND_INS = {
    "nodeagent": f"echo '{UPDATES}'",
    "systemctl": "printf 'kubelet.service enabled enabled\\ncrio.service enabled enabled\\n'",
}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["history", "show", ""], {"6d89", "aaaa"}),
        (["history", "diff", "6d89", "a"], {"aaaa"}),
        (["logs", "6"], {"6d89"}),
        (["config", "show", "w"], {"w-1", "w-2"}),
        (["explain", "kube"], {"kubelet.service"}),
        (["explain", "UnitNot"], {"UnitNotFound"}),
        (["explain", "/et"], {"/etc"}),
    ],
)
def test_bash_completes_what_is_on_the_host(
    completion: Path, tmp_path: Path, words: list[str], expected: set[str]
) -> None:
    for name, body in STAND_INS.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    script = completion / "usr/share/bash-completion/completions/nodeagent"
    quoted = " ".join(f"'{word}'" for word in words)
    code = f"""
PATH={tmp_path}:$PATH
source {script}
COMP_WORDS=(nodeagent {quoted}) COMP_CWORD={len(words)}
$(complete -p nodeagent | sed 's/.*-F \\([^ ]*\\).*/\\1/') nodeagent '{words[-1]}' '{words[-2]}'
echo "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, timeout=20, check=True)
    assert expected <= set(done.stdout.split())
    assert set(done.stdout.split()) - expected <= {"-f", "--follow", "--json", "-h", "--help", "--policy"}
