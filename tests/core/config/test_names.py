# SPDX-License-Identifier: Apache-2.0
"""Paths, unit names, drop-in names and kernel arguments: what is fit, and why something is not."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.config import kargs
from nodeagent.core.config.paths import managed_path_problem, path_problem
from nodeagent.core.config.unit_names import dropin_name_problem, unit_name_problem

GOOD_PATHS = [
    "/a",
    "/etc/a b/c.conf",
    "/etc/ünï/日本",
    "/etc/..a/...",
    "/etc/.hidden",
    "/usr/local/bin/x",
    "/usr/local",
    "/var/lib/kubelet/config.json",
    "/var/lib/nodeagentx",
    "/var/runner",
    "/devices/a",
    "/etc/nodeagent/config.d/50-site.yaml",
    "/etc/machine-config-daemon/policy-for-old-podman.json",
    "/etc/proc/sys",
    "/" + "n" * 255,
    "/" + "é" * 127,
]


@pytest.mark.parametrize("path", GOOD_PATHS)
def test_path_is_fit(path: str) -> None:
    assert managed_path_problem(path) is None


BAD_PATHS = {
    "": "must not be empty",
    "etc/a": "absolute",
    "./a": "absolute",
    "~/a": "absolute",
    "/": "root directory",
    "//": "//",
    "/etc/": "end with a slash",
    "/etc//a": "//",
    "//etc/a": "//",
    "/etc/../a": ". or ..",
    "/etc/..": ". or ..",
    "/etc/./a": ". or ..",
    "/etc/.": ". or ..",
    "/etc/a\0b": "control characters",
    "/etc/a\nb": "control characters",
    "/etc/a\x7f": "control characters",
    "/etc/a\x1b[2J": "control characters",
    "/etc/a\u2028b": "control characters",
    "/etc/" + "n" * 256: "more than 255 bytes",
    "/etc/" + "é" * 128: "more than 255 bytes",
    "/" + "/".join(["d" * 200] * 25): "longer than",
    "/d" * 65: "deeper than 64 levels",
    "/proc/sys/kernel/x": "kernel",
    "/sys": "kernel",
    "/dev/null": "kernel",
    "/run/a": "every boot",
    "/run": "every boot",
    "/var/run/a": "every boot",
    "/var/lock/a": "every boot",
    "/tmp/site.conf": "every boot",
    "/tmp": "every boot",
    "/usr/bin/a": "read-only",
    "/usr": "read-only",
    "/usr/localx": "read-only",
    "/lib/systemd/system/a.service": "read-only",
    "/sysroot/a": "read-only",
    "/ostree/deploy": "read-only",
    "/var/lib/nodeagent/state.db": "nodeagent's own",
    "/var/lib/nodeagent": "nodeagent's own",
    "/etc/nodeagent/machineconfig.yaml": "nodeagent's own",
    "/etc/machine-config-daemon/currentconfig": "record",
    "/etc/machine-config-daemon/orig/etc/a.mcdorig": "record",
    "/run/machine-config-daemon-force": "force a reboot",
    "/etc/machine-config-daemon-force": "force a reboot",
}


@pytest.mark.finding("files: paths that do not last", "A path below /tmp is refused, also by a plan without a host.")
@pytest.mark.parametrize("path", BAD_PATHS)
def test_path_is_not_fit(path: str) -> None:
    assert BAD_PATHS[path] in (managed_path_problem(path) or "")


def test_places_that_we_only_compare_may_be_anywhere() -> None:
    assert path_problem("/usr/lib/x") is None
    assert path_problem("/run") is None


GOOD_UNITS = [
    "a.service",
    "a@.service",
    "a@b.service",
    r"dev-disk-by\x2dlabel-x.device",
    "a:b_c-1.timer",
    "a.b.mount",
    "-.mount",
    "x.slice",
]


@pytest.mark.parametrize("name", GOOD_UNITS)
def test_unit_name_is_fit(name: str) -> None:
    assert unit_name_problem(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "", "a", ".service", "@.service", "@a.service", "a.conf", "a.service.d", "a.snapshot", "a.Service",
        "a b.service", "a/b.service", "../a.service", "ä.service", "a\n.service", "a\0.service", "a.service\n",
        "n" * 246 + ".service",
    ],
)  # fmt: skip
def test_unit_name_is_not_fit(name: str) -> None:
    assert unit_name_problem(name)


@pytest.mark.parametrize("name", ["a.conf", "10-a b.conf", "ä.conf", "n" * 250 + ".conf"])
def test_dropin_name_is_fit(name: str) -> None:
    assert dropin_name_problem(name) is None


@pytest.mark.parametrize(
    "name",
    ["", "a", "a.config", ".conf", ".a.conf", "a/b.conf", "../a.conf", "a\n.conf", "a\0.conf", "n" * 251 + ".conf"],
)
def test_dropin_name_is_not_fit(name: str) -> None:
    assert dropin_name_problem(name)


KARGS = {
    "quiet": ["quiet"],
    "quiet\n": ["quiet"],  # a block of YAML ends so
    " quiet  rd.debug\n": ["quiet", "rd.debug"],
    'a="b c" d': ['a="b c"', "d"],
    'a="b c"d"e f"': ['a="b c"d"e f"'],
    '"a b"=c': ['"a b"=c'],
    'a=""': ['a=""'],
    r'a="\" b': [r'a="\"', "b"],
    "console=tty0 console=ttyS0,115200n8": ["console=tty0", "console=ttyS0,115200n8"],
}


@pytest.mark.parametrize("entry", KARGS)
def test_kernel_arguments_are_split(entry: str) -> None:
    assert kargs.entry_problem(entry) is None
    assert kargs.split(entry) == KARGS[entry]


@pytest.mark.finding(
    "configs: kernel arguments",
    "An empty kernel argument, and one with a line break or control character, is rejected.",
)
@pytest.mark.parametrize(
    "entry",
    ['a="b', '"', 'a"b"c"', "a\0b", "a\x1bb", '"a\nb"', "", "  \t ", "\n", "a\nb", "a\r", "a\r\n", "a\x7f", "a\u0085"],
)
def test_kernel_argument_is_refused(entry: str) -> None:
    assert kargs.entry_problem(entry)


@given(st.lists(st.text('ab= ="', min_size=1).filter(lambda text: not kargs.entry_problem(text))))
def test_splitting_again_changes_nothing(entries: list[str]) -> None:
    tokens = [token for entry in entries for token in kargs.split(entry)]
    assert [again for token in tokens for again in kargs.split(token)] == tokens


@given(st.text('ab=" ', max_size=20).filter(lambda text: not kargs.entry_problem(text)))
def test_tokens_are_those_of_a_shell_without_escapes(entry: str) -> None:
    assert [token.replace('"', "") for token in kargs.split(entry)] == shlex.split(entry)
