# SPDX-License-Identifier: Apache-2.0
"""Which changes of registries.conf and its drop-ins need no drain."""

from __future__ import annotations

import pytest

from nodeagent.core.plan.change import Change, ChangeKind
from nodeagent.core.plan.policy import DRAIN, NONE
from nodeagent.core.plan.sides import HostView, Sides
from nodeagent.domains.registries import DOMAIN, DROPINS, REGISTRIES_CONF, RELOAD_CRIO, unsafe_reason
from tests.support.configs import config

SEARCH = 'unqualified-search-registries = ["example.com", "foo.com"]\n'


def registry(location: str, *mirrors: str, extra: str = "") -> str:
    text = f'[[registry]]\nlocation = "{location}"\n{extra}\n'
    for mirror in mirrors:
        name, _, pull = mirror.partition(" ")
        text += f'[[registry.mirror]]\nlocation = "{name}"\n' + (f'pull-from-mirror = "{pull}"\n' if pull else "")
    return text


A = registry("a.io/img", "m.io/img")
A_DIGEST = registry("a.io/img", "m.io/img digest-only")
B_DIGEST = registry("b.io/img", "m.io/b digest-only")
B_DIGEST_2 = registry("b.io/img", "m.io/b digest-only", "n.io/b digest-only")
B_PLAIN = registry("b.io/img")
B_MIRROR = registry("b.io/img", "m.io/b")
BY_DIGEST = "mirror-by-digest-only = true"
C = registry("c.io/img", "m.io/c", extra=BY_DIGEST)
C_2 = registry("c.io/img", "m.io/c", "n.io/c", extra=BY_DIGEST)
ALIAS = '[aliases]\ntool = "a.io/one"\n'
PREFIX = registry("a.io/img", extra='prefix = "bar.com"')

# old, new, the part of the reason that has to be there ("": safe)
TABLE: dict[str, tuple[str, str, str]] = {
    "nothing": (SEARCH + A + B_DIGEST, SEARCH + A + B_DIGEST, ""),
    "comment": (SEARCH + A, "# x\n" + SEARCH + A, ""),
    "registry added, all mirrors by digest": (SEARCH + A, SEARCH + A + B_DIGEST, ""),
    "registry added without mirrors": (SEARCH + A, SEARCH + A + B_PLAIN, "b.io/img is added"),
    "registry added without mirrors, by digest": (
        SEARCH + A,
        SEARCH + A + registry("b.io/img", extra=BY_DIGEST),
        "",
    ),
    "registry added with plain mirror": (SEARCH + A, SEARCH + A + B_MIRROR, "b.io/img is added"),
    # Upstream looks at each mirror of an added registry and not at the registry's own setting.
    "registry added by digest, mirrors say nothing": (SEARCH + A, SEARCH + A + C, "c.io/img is added"),
    "registry removed": (SEARCH + A + B_DIGEST, SEARCH + A, "b.io/img is removed"),
    "mirror added by digest": (SEARCH + A + B_DIGEST, SEARCH + A + B_DIGEST_2, ""),
    "mirror added to a registry by digest": (SEARCH + C, SEARCH + C_2, ""),
    "plain mirror added": (SEARCH + B_PLAIN, SEARCH + B_MIRROR, "mirror m.io/b of registry b.io/img is added"),
    "mirror removed": (SEARCH + B_DIGEST_2, SEARCH + B_DIGEST, "mirror n.io/b of registry b.io/img is removed"),
    "mirror becomes digest-only": (SEARCH + A, SEARCH + A_DIGEST, ""),
    "mirror is no longer digest-only": (SEARCH + A_DIGEST, SEARCH + A, "pull-from-mirror of mirror m.io/img"),
    "search extended": (SEARCH + A, 'unqualified-search-registries = ["example.com", "foo.com", "c"]\n' + A, ""),
    "search shortened": (SEARCH + A, 'unqualified-search-registries = ["example.com"]\n' + A, "lost an entry"),
    "search reordered": (SEARCH, 'unqualified-search-registries = ["foo.com", "example.com"]\n', "order"),
    "prefix given": (SEARCH + PREFIX, SEARCH + registry("a.io/img"), "bar.com is removed"),
    "location behind a prefix": (SEARCH + PREFIX, (SEARCH + PREFIX).replace("a.io", "b.io"), "location of registry"),
    "blocked": (SEARCH + A, SEARCH + registry("a.io/img", "m.io/img", extra="blocked = true"), "blocked"),
    "insecure": (SEARCH + A, SEARCH + registry("a.io/img", "m.io/img", extra="insecure = true"), "insecure"),
    "order of registries": (SEARCH + A + B_DIGEST, SEARCH + B_DIGEST + A, ""),
    "other keys": (SEARCH + A, 'short-name-mode = "enforcing"\n' + SEARCH + A, ""),
    "from nothing, by digest": ("", B_DIGEST, ""),
    "from nothing": ("", A, "a.io/img is added"),
    "to nothing": (A, "", "a.io/img is removed"),
    "to nothing from nothing much": ("", "# empty\n", ""),
    "new cannot be read": (A, "[[", "cannot be read"),
    "old cannot be read": ("[[", A, "cannot be read"),
    "a number that is too long": (A, f"a = {'9' * 5000}\n", "cannot be read"),
    "version 1": ("", "[registries.search]\nregistries = ['a']\n", "old format"),
    "from version 1": ("[registries.search]\nregistries = ['a']\n", SEARCH, "old format"),
    "repeated registry": (A, A + B_DIGEST + A_DIGEST, ""),
    "alias of another image": (ALIAS, ALIAS.replace("one", "two"), "alias tool changes"),
    "alias removed": (ALIAS, "", "alias tool changes"),
    "wrong type of aliases": (A, "aliases = 1\n" + A, "wrong type"),
    "wrong type of a list": (SEARCH, 'unqualified-search-registries = "a"\n', "wrong type"),
    "wrong type in a list": (SEARCH, "unqualified-search-registries = [1]\n", "wrong type"),
    "wrong type of a value": (A, "[[registry]]\nlocation = 1\n", "wrong type"),
    "wrong type of a registry": (A, "registry = [1]\n", "wrong type"),
    "wrong type of mirrors": (A, "[[registry]]\nlocation = 'a.io/img'\nmirror = 'x'\n", "wrong type"),
}


@pytest.mark.parametrize("case", TABLE)
def test_rule(case: str) -> None:
    old, new, reason = TABLE[case]
    found = unsafe_reason([old.encode()], [new.encode()])
    assert reason in found
    assert bool(reason) == bool(found)


def test_not_text() -> None:
    assert "cannot be read" in unsafe_reason([], [b"\xff"])


def test_verdict() -> None:
    def verdict(old: str | None, new: str | None) -> tuple[object, ...]:
        configs = [config(files={REGISTRIES_CONF: text.encode()} if text else {}) for text in (old, new)]
        change = Change("file", REGISTRIES_CONF, ChangeKind.MODIFIED)
        return DOMAIN.actions(change, Sides(*configs)).actions

    assert verdict(A, A_DIGEST) == (RELOAD_CRIO,)
    assert verdict(A_DIGEST, A) == (DRAIN, RELOAD_CRIO)
    assert verdict(A, None) == (DRAIN, RELOAD_CRIO)
    assert verdict(None, B_DIGEST) == (RELOAD_CRIO,)


SEARCH_C = 'unqualified-search-registries = ["c"]\n'
FIRST, SECOND = f"{DROPINS}/01-first.conf", f"{DROPINS}/02-second.conf"

# Changed files before and after, files of the host, the part of the reason that has to be there ("": safe)
DROP_INS: dict[str, tuple[dict[str, str], dict[str, str], dict[str, str], str]] = {
    "by digest": ({}, {FIRST: B_DIGEST}, {}, ""),
    "not by digest": ({}, {FIRST: B_PLAIN}, {}, "b.io/img is added"),
    "removed": ({FIRST: B_DIGEST}, {}, {}, "b.io/img is removed"),
    "moved to another file": ({FIRST: B_PLAIN}, {REGISTRIES_CONF: B_PLAIN}, {}, ""),
    "the search list is replaced": ({REGISTRIES_CONF: SEARCH}, {REGISTRIES_CONF: SEARCH, FIRST: SEARCH_C}, {}, "order"),
    "an empty list is one": (
        {FIRST: SEARCH},
        {FIRST: SEARCH, SECOND: "unqualified-search-registries = []\n"},
        {},
        "lost an entry",
    ),
    "a registry is replaced": ({FIRST: B_DIGEST}, {FIRST: B_DIGEST, SECOND: B_PLAIN}, {}, "mirror m.io/b"),
    "what another file replaces": ({SECOND: B_DIGEST}, {SECOND: B_DIGEST, FIRST: B_PLAIN}, {}, ""),
    "a file of the host replaces it": ({FIRST: A_DIGEST}, {FIRST: A}, {f"{DROPINS}/99.conf": A_DIGEST}, ""),
    "the file of the OS is replaced": ({}, {REGISTRIES_CONF: B_DIGEST}, {REGISTRIES_CONF: A}, "a.io/img is removed"),
    "the host has it already": ({}, {REGISTRIES_CONF: A}, {REGISTRIES_CONF: A}, ""),
    "aliases are merged": ({REGISTRIES_CONF: ALIAS}, {REGISTRIES_CONF: ALIAS, FIRST: ALIAS}, {}, ""),
    "version 1 of the host": ({}, {FIRST: B_DIGEST}, {REGISTRIES_CONF: "[registries.search]\n"}, "old format"),
}


@pytest.mark.parametrize("case", DROP_INS)
def test_drop_ins_are_read_with_the_files_of_the_host(case: str) -> None:
    before, after, host, reason = DROP_INS[case]
    old, new = (config(files={path: text.encode() for path, text in files.items()}) for files in (before, after))
    view = HostView({path: text.encode() for path, text in host.items()})
    verdict = DOMAIN.actions(Change("file", FIRST, ChangeKind.MODIFIED), Sides(old, new, view))
    assert reason in verdict.why
    assert verdict.actions == ((DRAIN, RELOAD_CRIO) if reason else (RELOAD_CRIO,))


@pytest.mark.parametrize("name", ["README", "a.conf.bak", "more/a.conf"])
def test_a_file_that_is_not_read_needs_nothing(name: str) -> None:
    path = f"{DROPINS}/{name}"
    sides = Sides(config(), config(files={path: A.encode()}))
    assert DOMAIN.actions(Change("file", path, ChangeKind.ADDED), sides).actions == (NONE,)
