# SPDX-License-Identifier: Apache-2.0
"""The files that name the places of image signatures."""

from __future__ import annotations

import pytest

from nodeagent.domains.signatures import check_locations, twice

TABLE: dict[str, tuple[str, str]] = {
    "empty": ("", ""),
    "comments only": ("# nothing\n", ""),
    "sigstore": ("docker:\n  quay.io/example:\n    use-sigstore-attachments: true\n", ""),
    "lookaside": ("default-docker:\n  lookaside: https://a.example/sigs\n  lookaside-staging: file:///var/x\n", ""),
    "unknown key": ("docker:\n  quay.io:\n    other: [1]\nmore: 1\n", ""),
    "namespace without a value": ("docker:\n  quay.io:\n", ""),
    "JSON": ('{"docker": {"quay.io": {"lookaside": "https://a.example"}}}', ""),
    "no YAML": ("docker: [", "YAML"),
    "a list": ("- docker\n", "must be a mapping, is a list"),
    "namespaces in a list": ("docker: [quay.io]\n", "docker must be a mapping"),
    "text of a namespace": ("docker:\n  quay.io: https://a.example\n", "quay.io"),
    "text of the default": ("default-docker: https://a.example\n", "default-docker must be a mapping"),
    "a list of places": ("default-docker:\n  lookaside: [a, b]\n", "default-docker.lookaside must be a string"),
    "a switch in quotes": ('docker:\n  a:\n    use-sigstore-attachments: "true"\n', "must be true or false"),
    "repeated namespace": ("docker:\n  a: {}\n  a: {}\n", "twice"),
}


@pytest.mark.parametrize("case", TABLE)
def test_check(case: str) -> None:
    text, problem = TABLE[case]
    found = list(check_locations(text.encode()))
    assert len(found) == bool(problem)
    assert problem in "".join(found)


def test_namespaces_of_two_files() -> None:
    files = {
        "/b": b"docker:\n  quay.io: {}\n  a.io: {}\ndefault-docker: {}\n",
        "/a": b"docker:\n  quay.io: {}\n",
        "/c": b"docker:\n  b.io: {}\ndefault-docker: {}\n",
        "/bad": b"docker: [",
        "/list": b"- quay.io\n",
    }
    found = [(name.replace('"', "").replace("'", ""), one, two) for name, one, two in twice(files)]
    assert found == [("docker.quay.io", "/a", "/b"), ("default-docker", "/b", "/c")]
