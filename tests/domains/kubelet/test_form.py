# SPDX-License-Identifier: Apache-2.0
"""The kubelet's configuration: a file that it cannot read is found before the reboot, not after it."""

from __future__ import annotations

import pytest

from nodeagent.domains.kubelet.document import check_form

GOOD = b"""\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: &anchor
  x509: {clientCAFile: /etc/kubernetes/ca.crt}
authorization: *anchor
maxPods: 250
"""


@pytest.mark.parametrize(
    "content",
    [
        GOOD,
        b"maxPods: 250\n",
        b'{"kind": "KubeletConfiguration"}',
        b"# only\nkind: KubeletConfiguration\r\n",
        b"---\nmaxPods: 250\n---\n# the end\n",
        b"a: {x: 1}\nb: {x: 1, y: [x, x, {x: x}]}\nx: x\n",
    ],
    ids=["yaml", "without a kind", "json", "CR LF", "an empty second document", "the same key elsewhere"],
)
def test_good(content: bytes) -> None:
    assert list(check_form(content)) == []


@pytest.mark.finding(
    "users: first trial of configs",
    "A kubelet configuration that the kubelet cannot read is rejected before the first write.",
)
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"kind: KubeletConfiguration\n\tmaxPods: 250\n", "line 2"),
        (b"kind: KubeletConfiguration\n maxPods: 250\n", "line 2"),
        (b"kind: KubeProxyConfiguration\n", "must be KubeletConfiguration"),
        (b"apiVersion: v1\nkind: KubeletConfiguration\n", "apiVersion"),
        (b"this is no yaml mapping\n", "not a YAML mapping"),
        (b"- a\n- b\n", "not a YAML mapping"),
        (b"", "not a YAML mapping"),
        (b"a: [1, 2\n", "not YAML"),
        (b"kind: \xff\n", "not UTF-8"),
        (b"kind: \x01\n", "character"),
        (b"a" * 2_000_000, "at most"),
        (b'"hunter2": "unfinished\n', "not YAML"),
        # The kubelet reads these without an error, and drops a part of them.
        (b"maxPods: 250\nport: 1\nmaxPods: 110\n", "line 3: the key 'maxPods' occurs twice"),
        (b"evictionHard:\n  memory.available: 1Gi\n  memory.available: 2Gi\n", "line 3"),
        (b'{"maxPods": 1, "maxPods": 1}', "line 1: the key 'maxPods' occurs twice"),
        (b"maxPods: 250\n---\nmaxPods: 110\n", "a second YAML document"),
    ],
)
def test_bad(content: bytes, said: str) -> None:
    (message,) = check_form(content)
    assert said in message
    assert "hunter2" not in message
