# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import json
import random
import re
import string
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.redact import HIDDEN, redact, redact_value

PEM = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIB\nq83vEjRWeA==\n-----END EC PRIVATE KEY-----"

SECRETS = [
    ("pull secret", '{"auths": {"quay.io": {"auth": "dXNlcjpwYXNz"}}}', "dXNlcjpwYXNz"),
    ("escaped pull secret", json.dumps(json.dumps({"auth": "dXNlcjpwYXNz"})), "dXNlcjpwYXNz"),
    ("python repr", "{'password': 'hunter2'}", "hunter2"),
    ("quote in a value", r'{"password": "hun\"ter2"}', "ter2"),
    ("other quote in a value", '{"password": "it\'s hunter2"}', "hunter2"),
    ("bearer", "Authorization: Bearer abc.def-ghi_jkl", "abc.def"),
    ("basic in a sentence", "sent Basic dXNlcjpwYXNz to it", "dXNlcjpwYXNz"),
    ("assignment", "curl failed: token=s3cr3t&x=1", "s3cr3t"),
    ("assignment to a longer name", "Environment=DB_PASSWORD=s3cr3t", "s3cr3t"),
    ("ini with blanks", "[db]\nuser = x\ndb_password = two words", "two"),
    ("toml", 'token = "s3cr3t and more"', "and more"),
    ("wifi", "[wifi-security]\nkey-mgmt=wpa-psk\npsk=hunter2 hunter3", "hunter3"),
    ("yaml with a longer name", "admin_password: hunter2", "hunter2"),
    ("yaml", "users:\n  - password: hunter2 and more", "hunter2"),
    ("url", "cannot pull https://bob:hunter2@registry.example/x", "hunter2"),
    ("url with an @ in the password", "http://bob:hun@ter2@proxy:3128 refused", "ter2"),
    ("url with a token as the name", "fetch https://0123456789abcdef0123@git.example/x failed", "0123456789abcdef"),
    ("signed url", "GET https://store.example/x?se=1&sig=abc%2Bdef: 403", "abc%2Bdef"),
    ("quoted assignment", 'Environment="DB_PASSWORD=two words" X=1', "words"),
    ("option of a command", "ExecStart=/bin/x --client-secret hunter2 --verbose", "hunter2"),
    ("environment of a cloud", "export AWS_SECRET_ACCESS_KEY=hunter2", "hunter2"),
    ("environment of a database", "PGPASSWORD=hunter2 psql", "hunter2"),
    ("header of HTTP", "X-Auth-Token: hunter2", "hunter2"),
    ("header of a proxy", "Proxy-Authorization: Custom hunter2", "hunter2"),
    ("cookie", "Set-Cookie: session=hunter2", "hunter2"),
    ("key with dashes", "[wireguard]\npreshared-key=hunter2", "hunter2"),
    ("service account", "line 3: eyJhbGciOiJSUzI1.eyJpc3MiOiJrdWJl.abc-def", "rdWJl"),
    ("token with a prefix", "clone with ghp_0123456789abcdefghij0123456789abcdef", "89abcdefghij"),
    ("hash of a directory", "userPassword {SSHA}5en6G6MezRroT3XKqkdP", "MezRro"),
    ("hash of GRUB", "line 1: grub.pbkdf2.sha512.10000.0123ABCD.4567EF", "4567EF"),
    ("private key", f"line 3: {PEM}", "q83v"),
    ("private key without an end", PEM[:60], "MHcC"),
    ("private key in JSON", json.dumps({"key": PEM}), "q83v"),
    ("sha512 hash", "core:$6$salt$abcdefgh./XYZ:19000", "abcdefgh"),
    ("yescrypt hash", "chpasswd: line 1: core:$y$j9T$F5Jx$abcdef", "F5Jx"),
    ("bcrypt hash", "$2b$12$abcdefghijklmnopqrstuv", "mnopq"),
    ("long base64", base64.b64encode(bytes(range(60))).decode(), "AAECAwQ"),
    ("url-safe base64", base64.urlsafe_b64encode(bytes(range(200, 255))).decode(), "yMnK"),
]


@pytest.mark.parametrize(("text", "secret"), [s[1:] for s in SECRETS], ids=[s[0] for s in SECRETS])
def test_hides(text: str, secret: str) -> None:
    assert secret in text
    assert secret not in redact(text)
    assert HIDDEN in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "rendered-worker-5f9c0d8f1b2a3c4d5e6f708192a3b4c5 -> rendered-worker-0f9c0d8f1b2a3c4d5e6f708192a3b4c5",
        "digest " + "0123456789abcdef" * 4,
        "/etc/NetworkManager/system-connections/Wired_connection_1_of_the_second_Card",
        "/var/lib/kubelet/config.json: the credentials of quay.io cannot be decoded",
        "set password of core",
        "password:core",
        "key-mgmt=wpa-psk",
        "lease held by maintenance: token changed",
        "authentication is required: polkit said no",
        "quay.io/openshift-release-dev/ocp-v4.0-art-dev@sha256:" + "ab" * 32,
        "restart sys-devices-pci0000:00-0000:00:1f.2-ata1-host0-target0:0:0-block-sda.device",
        "mode 0644, expected 0600; uid=0 gid=0",
        "cannot write /etc/kubernetes/token: Permission denied",
        "file:/etc/app/password.conf is not as desired: is missing",
        "restart api-token.service: not needed",
        "git clone https://bob@git.example/x",
        "https://[::1]:6443: no answer in 10 s",
        "auth        required      pam_unix.so",
        "PasswordAuthentication no",
        "nodeagent apply --remove 301 FILE",
    ],
)
def test_leaves_alone(text: str) -> None:
    assert redact(text) == text


def test_a_key_that_names_a_secret_hides_its_value() -> None:
    value = redact_value("fields", {"registry_password": "x", "n": 3, "deep": [{"auth": "y"}], "b": b"\x00\x01"})
    assert value == {"registry_password": HIDDEN, "n": 3, "deep": [{"auth": HIDDEN}], "b": "<2 bytes>"}


def test_an_empty_secret_is_worth_knowing() -> None:
    assert redact_value("password", "") == ""
    assert redact_value("token", None) is None


ALPHABET = string.ascii_letters + string.digits + "+/"


@given(
    seed=st.integers(),
    length=st.integers(40, 400),
    before=st.text(max_size=30),
    after=st.text(max_size=30),
)
def test_no_random_credential_comes_through(seed: int, length: int, before: str, after: str) -> None:
    """Whatever stands around it. Random in the sense of a key: hypothesis would shrink to one that is no secret."""
    word = "".join(random.Random(seed).choices(ALPHABET, k=length))
    assert word not in redact(f"{before} {word} {after}")


@given(
    user=st.text(string.ascii_lowercase, min_size=1, max_size=8),
    secret=st.text(string.ascii_letters + string.digits + "!#%+-./", min_size=6, max_size=40),
    indent=st.sampled_from([None, 2]),
    times=st.integers(0, 2),
)
def test_no_pull_secret_comes_through(user: str, secret: str, indent: int | None, times: int) -> None:
    auth = base64.b64encode(f"{user}:{secret}".encode()).decode()
    text = json.dumps({"auths": {"r.example": {"auth": auth, "password": secret}}}, indent=indent)
    for _ in range(times):
        text = json.dumps(text)
    assert auth not in redact(text)
    # The secret may be the beginning of another word of the text.
    assert secret == "password" or not re.search(rf'"{re.escape(secret)}\\*"', redact(text))


@given(st.text(max_size=300))
def test_twice_is_once(text: str) -> None:
    once = redact(text)
    assert redact(once) == once


@pytest.mark.parametrize(
    "piece",
    [
        "-----BEGIN RSA PRIVATE KEY",
        '"auth": "',
        "\\",
        "a://b:",
        "$6$",
        "A1b2" * 11,
        "auth=",
        "- ",
        "a.",
        "a_",
        "a_a-password",
        "://",
        "aA1",
        "'auth':'",
        "eyJaaaaaaaaaa-",
        "eyJaaaaaaaaaa.",
        "ghp_",
        "--a-token ",
        "--a-a-",
        "x-a-",
        "?sig=",
        "a://b@",
        '"token=',
        "{SHA}",
        "grub.pbkdf2.",
    ],
)
def test_time_is_linear(piece: str) -> None:
    start = time.thread_time()
    redact(piece * (200_000 // len(piece)))
    assert time.thread_time() - start < 2  # CPU time: the machine may be busy


# --- names

LONG = "ACME_Corporation_Internal_Issuing_CA_2024_G2"
CHECKOUT = "Deployments/Cluster-EU-West/machineconfigs/99-worker-chrony"


@pytest.mark.finding("secrets: names in errors", "Paths and names of units are never redacted, however long they are.")
@pytest.mark.parametrize(
    "text",
    [
        f"longca.yaml has invalid content: /etc/pki/ca-trust/source/anchors/{LONG}.crt: has no certificate",
        f"drift: content differs: file:/etc/NetworkManager/dispatcher.d/99-{LONG}",
        f"write /usr/local/bin/{LONG}-{LONG}",
        f"/data/{LONG}/x.conf cannot be created",
        f"ExecStart=/usr/local/bin/{LONG}",
        f"ExecStartPre=-/opt/{LONG}/{LONG}",
        f"reverting to l3: {LONG}.service failed (exit-code)",
        f"restart {LONG}@eth0.service: not needed",
        f"unit:{LONG}.mount is disabled",
        f"/etc/systemd/system/{LONG}.service.d/10-{LONG}.conf: line 2",
    ],
)
def test_names_of_a_host_stay(text: str) -> None:
    assert redact(text) == text


@pytest.mark.finding("secrets: names in errors", "Names that the caller knows stay, and values around them are hidden.")
def test_names_that_the_caller_knows_stay() -> None:
    secret = base64.b64encode(bytes(range(60))).decode()
    text = f"{CHECKOUT}.yaml is invalid: {LONG}: line 3: {secret}"
    assert redact(text) == f"{HIDDEN}.yaml is invalid: {HIDDEN}: line 3: {HIDDEN}"
    assert redact(text, [f"{CHECKOUT}.yaml", LONG, "x"]) == f"{CHECKOUT}.yaml is invalid: {LONG}: line 3: {HIDDEN}"
    assert redact(f"{LONG}{secret}", ["yaml"]) == HIDDEN


@pytest.mark.finding("secrets: names in errors", "A value beside a name is hidden.")
@pytest.mark.parametrize(
    "text",
    [
        "/etc/app.conf:{}",
        "/etc/app.conf={}",
        "foo.service {}",
        "foo.service={}",
        "Environment=PATH=/usr/bin TOKENS={}",
        "https://host/etc/{}",
        "auth=/etc/{}",
        "{}/etc/app",
    ],
)
def test_a_value_beside_a_name_is_hidden(text: str) -> None:
    secret = base64.b64encode(bytes(range(60))).decode().rstrip("=")
    assert secret not in redact(text.format(secret))
