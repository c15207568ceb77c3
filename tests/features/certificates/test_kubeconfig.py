# SPDX-License-Identifier: Apache-2.0
"""What is taken over from the kubeconfig of the bootstrap, and what is written."""

from __future__ import annotations

import asyncio
import base64
import os
import re
from pathlib import Path

import pytest
import yaml

from nodeagent.errors import InvalidInput
from nodeagent.features.certificates.kubeconfig import client_certificate_of, cluster_of, kubeconfig, self_contained
from nodeagent.kube.credentials import _run_to_end

BOOTSTRAP = """
current-context: c
clusters:
- {name: other, cluster: {server: "https://other"}}
- name: k
  cluster: {server: "https://api:6443", certificate-authority: pki/ca.crt, tls-server-name: api}
contexts: [{name: c, context: {cluster: k, user: u}}]
users: [{name: u, user: {token: very-secret}}]
"""


def test_the_way_to_the_cluster_without_the_credentials(tmp_path: Path) -> None:
    source, target = tmp_path / "bootstrap", tmp_path / "kubeconfig"
    source.write_text(BOOTSTRAP)
    cluster = cluster_of(source)
    assert cluster == {
        "server": "https://api:6443",
        "certificate-authority": str(tmp_path / "pki/ca.crt"),
        "tls-server-name": "api",
    }
    assert client_certificate_of(source) is None
    target.write_bytes(kubeconfig(cluster, Path("/state/client.pem")))
    assert cluster_of(target) == cluster
    assert client_certificate_of(target) == Path("/state/client.pem")
    assert yaml.safe_load(target.read_text())["users"][0]["user"]["client-key"] == "/state/client.pem"
    assert "very-secret" not in target.read_text()


def test_a_copy_that_names_no_file(tmp_path: Path) -> None:
    (tmp_path / "pki").mkdir()
    (tmp_path / "pki/ca.crt").write_text("authority")
    (tmp_path / "client.pem").write_text("key and certificate")
    (tmp_path / "token").write_text("in a file\n")
    source = tmp_path / "bootstrap"
    user = "client-certificate: client.pem, client-key: client.pem, tokenFile: token"
    source.write_text(BOOTSTRAP.replace("token: very-secret", user))
    copy = tmp_path / "elsewhere" / "copy"
    copy.parent.mkdir()
    copy.write_bytes(self_contained(source))
    encoded = base64.b64encode(b"key and certificate").decode()
    document = yaml.safe_load(copy.read_text())
    assert document["users"][0]["user"] == {
        "client-certificate-data": encoded,
        "client-key-data": encoded,
        "token": "in a file",
    }
    authority = base64.b64encode(b"authority").decode()
    expected = {"server": "https://api:6443", "tls-server-name": "api", "certificate-authority-data": authority}
    assert cluster_of(copy) == expected
    # The content of a key wins, as for kubectl and the official library.
    source.write_text(BOOTSTRAP.replace("token: very-secret", "token: inline, tokenFile: token"))
    assert yaml.safe_load(self_contained(source))["users"][0]["user"] == {"token": "inline"}


@pytest.mark.parametrize("what", ["missing", "a directory", "a pipe"])
def test_a_file_of_a_kubeconfig_that_cannot_be_read(tmp_path: Path, what: str) -> None:
    (tmp_path / "pki").mkdir()
    authority = tmp_path / "pki/ca.crt"
    if what == "a directory":
        authority.mkdir()
    elif what == "a pipe":
        os.mkfifo(authority)
    source = tmp_path / "bootstrap"
    source.write_text(BOOTSTRAP)
    with pytest.raises(InvalidInput, match=re.escape(str(authority))) as caught:
        self_contained(source)
    assert caught.value.reason == "KubeconfigInvalid"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "a: [",
        "current-context: c",
        BOOTSTRAP.replace("current-context: c", "current-context: d"),
        BOOTSTRAP.replace("{cluster: k,", "{cluster: l,"),
        BOOTSTRAP.replace('server: "https://api:6443",', ""),
        BOOTSTRAP.replace("current-context: c", "current-context: [very-secret"),
    ],
)
def test_not_a_kubeconfig(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(InvalidInput) as caught:
        cluster_of(path)
    assert caught.value.reason == "KubeconfigInvalid"
    assert "very-secret" not in caught.value.message


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="No such file"):
        cluster_of(tmp_path / "kubeconfig")


async def test_a_kubeconfig_that_needs_a_helper_program_after_all_is_not_read_in_part() -> None:
    steps: list[str] = []

    async def load(*, waits: bool) -> None:
        steps.append("begun")
        if waits:
            try:
                await asyncio.sleep(0)
            finally:
                steps.append("given up")
        steps.append("ended")

    _run_to_end(load(waits=False))
    assert steps == ["begun", "ended"]
    with pytest.raises(ValueError, match="helper program"):
        _run_to_end(load(waits=True))
    assert steps[2:] == ["begun", "given up"]
