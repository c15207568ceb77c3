# SPDX-License-Identifier: Apache-2.0
"""Images that have to be signed: the host's own policy decides, and an update that it refuses touches nothing."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.ostree import updates
from integration.hosts.ostree.conftest import IMAGE, OstreeHostMaker, Publish
from integration.hosts.ostree.ostree_host import OstreeHost
from integration.trees.image_registry import Published, Registry
from integration.trees.ostree_repo import OstreeRepo
from integration.trees.tree import A, B, Tree

POLICY_JSON = "/etc/containers/policy.json"
KEY = "/etc/pki/containers/example.pub"
POLICY = {
    "default": [{"type": "reject"}],
    "transports": {"docker": {"quay.io/example": [{"type": "sigstoreSigned", "keyPath": KEY}]}},
}
SIGNED = "ostree-image-signed:docker://"


@pytest.fixture
def node(make_node_at_a: OstreeHostMaker) -> OstreeHost:
    return make_node_at_a(files={POLICY_JSON: json.dumps(POLICY)})


@pytest.fixture
def signed(
    ostree_repo: OstreeRepo, registry: Registry, node_tree: Callable[[Tree], Tree]
) -> Callable[[Tree, str], Published]:
    """The image of a tree whose signature is `good` or `bad`."""

    def publish(tree: Tree, signature: str) -> Published:
        commit = ostree_repo.commit(node_tree(tree))
        return registry.publish(commit, f"{IMAGE}-{signature}", tree.version, f"--signature={signature}")

    return publish


def refused(node: OstreeHost, name: str, image: str, words: str) -> None:
    agent.apply(node, updates.config(name, image))
    now = updates.wait_status(node, words, lambda now: now["phase"] == "Degraded" and words in now["message"])
    assert (now["reason"], now["current"], now["lease"]) == ("SignatureInvalid", "a", None)
    assert updates.shown(now) == [f"{A.version} booted"]
    assert node.read_text(updates.MINE) == "mine of a\n"
    # An update that still waits to be tried again ends when the next config takes over.
    ended = [each for each in agent.outcomes(node) if each[1] != "superseded"]
    assert (node.reboots, ended) == (0, [("a", "done")])


def test_only_what_is_signed_is_pulled(
    node: OstreeHost, publish: Publish, signed: Callable[[Tree, str], Published]
) -> None:
    refused(node, "unsigned", SIGNED + publish(B).by_digest, "A signature was required")
    # The policy is for who does not ask for a signature as well.
    refused(node, "unasked", publish(B).by_digest, "A signature was required")
    refused(node, "forged", SIGNED + signed(B, "bad").by_digest, "signature verification failed")
    elsewhere = publish(B).by_digest.replace("quay.io/example", "quay.io/elsewhere")
    agent.apply(node, updates.config("elsewhere", elsewhere))
    # The registry or the policy: whichever rpm-ostree asks first. For a moment the status may still say `Superseded`.
    updates.wait_status(
        node,
        "the image of another registry is refused",
        lambda now: now["desired"] == "elsewhere" and now["reason"] in ("ImageNotFound", "SignatureInvalid"),
    )
    agent.apply(node, updates.config("b", SIGNED + signed(B, "good").by_digest))
    updates.wait_updated(node, "b", B)
    ended = [each for each in agent.outcomes(node) if each[1] != "superseded"]
    assert (node.reboots, ended) == (1, [("a", "done"), ("b", "done")])


def test_a_policy_that_asks_for_nothing(make_node_at_a: OstreeHostMaker, publish: Publish) -> None:
    """Otherwise the signature that the config requires would not have been checked."""
    node = make_node_at_a(files={POLICY_JSON: json.dumps({"default": [{"type": "insecureAcceptAnything"}]})})
    refused(node, "b", SIGNED + publish(B).by_digest, "insecureAcceptAnything")


def test_a_signature_that_comes_later(node_at_a: OstreeHost, publish: Publish) -> None:
    """A refused image is requested again, as when the signature was pushed after the image."""
    updates.inject_faults(node_at_a, {"at": "pull", "do": "fail", "error": "signature", "times": 1})
    refused(node_at_a, "b", publish(B).by_digest, "A signature was required")
    updates.apply_again(node_at_a, updates.config("b", publish(B)))
    updates.wait_updated(node_at_a, "b", B)
