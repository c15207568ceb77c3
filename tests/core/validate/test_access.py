# SPDX-License-Identifier: Apache-2.0
"""SSH keys and password hashes: what sshd and crypt(3) can use, and what would lock the admin out."""

from __future__ import annotations

import base64

import pytest

from nodeagent.core.config.machineconfig import MachineConfig, UserEntry
from nodeagent.core.plan import reconcile
from nodeagent.core.plan.reconcile import check_reconcilable
from nodeagent.core.validate import ssh_key
from tests.support.keys import ed25519, line, packed

POINTS = {"nistp256": 65, "nistp384": 97, "nistp521": 133}
MODULUS = b"\0" + b"\xff" * 384
GOOD = ed25519("me")

KEYS = {
    "ed25519": GOOD,
    "no comment": " ".join(GOOD.split()[:2]),
    "a comment with blanks": ed25519("me", "me at home"),
    "rsa": line("ssh-rsa", b"\1\0\1", MODULUS),
    **{curve: line(f"ecdsa-sha2-{curve}", curve, b"\4" + b"\0" * (size - 1)) for curve, size in POINTS.items()},
    "security key": line("sk-ssh-ed25519@openssh.com", bytes(32), "ssh:"),
    "security key, ecdsa": line("sk-ecdsa-sha2-nistp256@openssh.com", "nistp256", bytes(65), "ssh:"),
    "certificate": line(
        "ssh-ed25519-cert-v01@openssh.com",
        bytes(32),
        bytes(32),
        rest=bytes(12) + packed("id", packed("core")) + bytes(16) + packed(b"", b"", b"", GOOD.encode(), b"signature"),
    ),
    "options": f'restrict,pty,from="10.0.0.0/8,!10.1.2.3" {GOOD}',
    "a command with quotes and blanks": f'command="/bin/sh -c \\"echo a, b\\"",no-X11-forwarding\t{GOOD}',
    "of an authority": f"cert-authority {GOOD}",
    "comment": "# keys of the night shift",
}


@pytest.mark.parametrize("name", KEYS)
def test_a_key_that_sshd_reads(name: str) -> None:
    assert ssh_key.check(KEYS[name]) == ""


DATA = GOOD.split()[1]
BAD_KEYS = {
    "the finding": ("ssh-ed25519 AAAAnotakey me", "not base64"),
    "garbage that is base64": ("ssh-ed25519 AAAAnotakeyy= me", "'me'"),
    "cut off": (f"ssh-ed25519 {DATA[:40]} me", "incomplete"),
    "of another type inside": (GOOD.replace("ssh-ed25519", "ssh-rsa", 1), "holds a key of type ssh-ed25519"),
    "too short": (line("ssh-ed25519", bytes(31)), "31 bytes instead of 32"),
    "more behind it": (line("ssh-ed25519", bytes(32), rest=b"x"), "after its end"),
    "a short RSA key": (line("ssh-rsa", b"\1\0\1", b"\x7f" * 64), "has 511 bits"),
    "DSA": (line("ssh-dss", b"1", b"2", b"3", b"4"), "DSA"),
    "no data": ("ssh-ed25519", "nothing after its type"),
    "a type with a typing error": (GOOD.replace("ssh-ed25519", "ssh-ed2551", 1), "did you mean ssh-ed25519"),
    "only data": (DATA, "not a public key"),
    "an unknown option": (f'comand="x" {GOOD}', "did you mean command"),
    "an option without its value": (f"command {GOOD}", 'command="..."'),
    "a value without quotes": (f"from=10.0.0.1 {GOOD}", "in double quotes"),
    "an open quote": (f'command="x {GOOD}', "unpaired double quote"),
    "options alone": ("restrict", "options and no key"),
    "a private key": ("-----BEGIN OPENSSH PRIVATE KEY-----", "is a private key"),
    "a line of a private key": ("b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQ", "not a public key"),
    "too long": (f"{GOOD}{'x' * 9000}", "longer than sshd reads"),
}


@pytest.mark.finding(
    "users: first trial of configs",
    "A key that sshd would skip is rejected: type, base64, the type inside, lengths, options.",
)
@pytest.mark.parametrize("name", BAD_KEYS)
def test_a_key_that_sshd_skips(name: str) -> None:
    text, said = BAD_KEYS[name]
    assert said in ssh_key.check(text)


@pytest.mark.finding("users: first trial of configs", "A private key that was pasted by mistake is never quoted.")
def test_a_private_key_is_never_quoted() -> None:
    secret = base64.b64encode(b"openssh-key-v1\0 very secret indeed").decode()
    for text in (secret, f"ssh-ed25519 {secret}", f"{secret} {GOOD}", f"ssh-ed25519 {secret}="):
        assert secret[8:24] not in ssh_key.check(text)


H86, H43, H22 = "a" * 86, "a" * 43, "a" * 22
HASHES = {
    "sha512": f"$6$salt${H86}",
    "sha512 with rounds": f"$6$rounds=4096$salt${H86}",
    "sha256": f"$5$salt${H43}",
    "yescrypt": f"$y$j9T$F5Jx5fExrKuPp53xLKQ..1${H43}",
    "gost-yescrypt": f"$gy$j9T$F5Jx5fExrKuPp53xLKQ..1${H43}",
    "scrypt": f"$7$CU..../....2Q9obwLhin8qvQl6sisAO/${H43}",
    "bcrypt": f"$2b$05${'a' * 53}",
    "md5": f"$1$saltsalt${H22}",
    "locked": f"!$6$salt${H86}",
    "locked, without a password": "!",
    "never had one": "*",
    "locked twice": "!!",
}


@pytest.mark.parametrize("name", HASHES)
def test_a_hash_that_crypt_reads(name: str) -> None:
    assert reconcile.hash_problem(HASHES[name]) == ""


@pytest.mark.finding(
    "configs: password hashes", "`passwordHash` has to be a hash that crypt(3) reads, and is never quoted."
)
@pytest.mark.parametrize(
    "value",
    [
        "hunter2Sekret",  # thirteen letters, which could be an old DES hash
        "hunter2",
        "$6$salt$hunter2",
        f"$6$salt${H86}a",
        f"$y$j9T$salt${H86}",
        f"$99$salt${H86}",
        "!hunter2",
        "$6$",
        f" $6$salt${H86}",
        "_J9..rasmBYk8r9AiWNc",
    ],
)
def test_what_is_no_hash_is_refused_and_not_quoted(value: str) -> None:
    said = reconcile.hash_problem(value)
    assert "mkpasswd" in said
    assert "hunter2" not in said
    assert "aaaa" not in said


def core(*keys: str, password: str | None = None) -> MachineConfig:
    return MachineConfig("c", users={"core": UserEntry("core", keys, password)})


def test_only_what_is_new_is_checked() -> None:
    """A config that an older agent took does not stop all later ones."""
    assert list(reconcile.check_access(core("nonsense", password="x"), core("nonsense", GOOD, password="x"))) == []
    found = list(reconcile.check_access(core(GOOD), core(GOOD, "nonsense", password="x")))
    assert [problem.path for problem in found] == [
        "spec.config.passwd.users[core].sshAuthorizedKeys",
        "spec.config.passwd.users[core].passwordHash",
    ]


@pytest.mark.finding("users: first trial of configs", "Comments and locked passwords are no access.")
@pytest.mark.parametrize(
    ("user", "out"),
    [
        (core("# a comment"), True),
        (core(password="!"), True),
        (core("# a comment", password=f"!$6$salt${H86}"), True),
        (core("# a comment", GOOD), False),
        (core(password=f"$6$salt${H86}"), False),
    ],
)
def test_comments_and_locked_passwords_are_no_access(user: MachineConfig, out: bool) -> None:
    assert [("locked out" in problem.message) for problem in check_reconcilable(core(GOOD), user)] == [True] * out
