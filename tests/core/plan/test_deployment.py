# SPDX-License-Identifier: Apache-2.0
"""The target of the OS for a change of config, and deployments that meet it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.config.image import ContainerImage, OstreeCommit, parse_image
from nodeagent.core.config.kargs import families_of, members, merged
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.plan.deployment import (
    Deployment,
    OsTarget,
    booted,
    merged_arguments,
    staged,
    target_between,
    target_from_dict,
    target_to_dict,
    unmet,
)
from nodeagent.errors import InvalidInput

ONE, TWO = "1" * 64, "2" * 64
IMAGE = parse_image(f"q/os@sha256:{ONE}")
HERE = Deployment(
    id=f"os-{TWO}.0",
    checksum=TWO,
    osname="os",
    base=TWO,
    image=f"ostree-unverified-registry:q/os@sha256:{ONE}",
    digest=f"sha256:{ONE}",
    packages=frozenset({"kata"}),
    kernel_arguments=("root=x", "a=1", "a=2"),
)


def config(**fields: object) -> MachineConfig:
    return MachineConfig(**({"name": "c"} | fields))  # type: ignore[arg-type]


# -- target -----------------------------------------------------------------------------------------------------------


def test_no_target_for_what_needs_no_deployment() -> None:
    same = {"os_image_url": f"q/os@sha256:{ONE}", "kernel_arguments": ("a",), "extensions": ("usbguard",)}
    assert target_between(config(**same), config(**same)) is None


def test_kernel_arguments_that_stay_and_that_go() -> None:
    target = target_between(config(kernel_arguments=("a", "b")), config(kernel_arguments=("b", "c")))
    assert target
    assert (target.image, target.kernel_arguments, target.without_kernel_arguments) == (None, ("b", "c"), ("a", "b"))


def test_another_order_is_a_change() -> None:
    target = target_between(config(kernel_arguments=("a=1", "a=2")), config(kernel_arguments=("a=2", "a=1")))
    assert target
    assert unmet(target, HERE) == {"kernelArguments": "has arguments that belong together in another order"}


def test_an_image_that_stays_is_no_part_of_it() -> None:
    url = f"q/os@sha256:{ONE}"
    target = target_between(config(os_image_url=url), config(os_image_url=url, extensions=("usbguard",)))
    assert target
    assert (target.image, target.packages) == (None, {"usbguard"})
    target = target_between(config(), config(os_image_url=url))
    assert target
    assert target.image == IMAGE


def test_another_kernel_and_back() -> None:
    there = target_between(config(), config(kernel_type="realtime"))
    back = target_between(config(kernel_type="realtime"), config())
    assert there
    assert back
    assert "kernel-rt-core" in there.packages & back.without_packages
    assert there.removed == back.without_removed != frozenset()


def test_an_image_that_is_not_pinned() -> None:
    with pytest.raises(InvalidInput):
        target_between(config(), config(os_image_url="q/os:latest"))


# -- unmet ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "wrong"),
    [
        (OsTarget(), {}),
        (OsTarget(image=IMAGE, packages=frozenset({"kata"}), kernel_arguments=("a=1", "a=2")), {}),
        (OsTarget(image=OstreeCommit("r", "b", TWO)), {}),
        (OsTarget(image=OstreeCommit("r", "b", ONE)), {"osImageURL": f"is {TWO}"}),
        (
            OsTarget(kernel_arguments=("b",), without_kernel_arguments=("a=1", "c")),
            {"kernelArguments": "lacks b, still has a=1"},
        ),
        (OsTarget(kernel_arguments=("a=1", "a=1")), {"kernelArguments": "lacks a=1"}),
        (
            OsTarget(packages=frozenset({"z", "y"}), without_packages=frozenset({"kata"})),
            {"extensions": "lacks y, lacks z, still has kata"},
        ),
        (OsTarget(removed=frozenset({"kernel-core"})), {"kernelType": "has another kernel"}),
        (OsTarget(removed=frozenset({"kernel-modules-core"})), {}),  # the image may not have it
    ],
)
def test_what_a_deployment_lacks(target: OsTarget, wrong: dict[str, str]) -> None:
    assert unmet(target, HERE) == wrong


def test_a_container_is_known_by_its_digest() -> None:
    target = OsTarget(image=IMAGE)
    other = replace(HERE, digest=f"sha256:{TWO}")
    assert unmet(target, other) == {"osImageURL": f"is sha256:{TWO}"}
    # The daemon could not read the image's metadata; then its pinned origin has to do.
    assert not unmet(target, replace(HERE, digest=""))
    assert unmet(target, replace(HERE, digest="", image="q/os:latest")) == {"osImageURL": f"is {TWO}"}


def test_the_tree_below_layered_packages_counts() -> None:
    assert not unmet(OsTarget(image=OstreeCommit("r", "b", ONE)), replace(HERE, base=ONE))


def test_which_is_booted_and_which_staged() -> None:
    ours, theirs = replace(HERE, booted=True), replace(HERE, staged=True)
    assert booted([theirs, ours]) is ours
    assert staged([theirs, ours]) is theirs
    assert booted([theirs]) is staged([ours]) is None


# -- properties -------------------------------------------------------------------------------------------------------

TOKENS = st.lists(st.sampled_from(["a", "a=1", "a=2", "b", "c=1"]), max_size=4).map(tuple)
NAMES = st.frozensets(st.sampled_from(["kata", "x", "y"]))
TARGETS = st.builds(
    OsTarget,
    image=st.sampled_from([None, IMAGE, OstreeCommit("r", "b/c", ONE)]),
    kernel_arguments=TOKENS,
    without_kernel_arguments=TOKENS,
    packages=NAMES,
    without_packages=NAMES,
    removed=NAMES,
    without_removed=NAMES,
)


@given(TARGETS)
def test_a_target_survives_the_record(target: OsTarget) -> None:
    assert target_from_dict(json.loads(json.dumps(target_to_dict(target)))) == target


@given(TARGETS, TOKENS)
def test_a_deployment_made_as_asked_lacks_nothing(target: OsTarget, there: tuple[str, ...]) -> None:
    target = replace(
        target,
        without_packages=target.without_packages - target.packages,
        without_removed=target.without_removed - target.removed,
    )
    base, digest = HERE.base, HERE.digest
    match target.image:
        case ContainerImage(digest=asked):
            digest = asked
        case OstreeCommit(checksum=asked):
            base = asked
    made = replace(
        HERE,
        base=base,
        digest=digest,
        packages=(HERE.packages | target.packages) - target.without_packages,
        removed=target.removed,
        kernel_arguments=merged(there, target.kernel_arguments, target.without_kernel_arguments),
    )
    assert unmet(target, made) == {}


@given(TARGETS, TOKENS)
def test_kernel_arguments_are_met_when_merging_has_nothing_to_do(target: OsTarget, there: tuple[str, ...]) -> None:
    done = merged(there, target.kernel_arguments, target.without_kernel_arguments) == there
    assert ("kernelArguments" not in unmet(target, replace(HERE, kernel_arguments=there))) == done


TOKENS = st.lists(
    st.sampled_from(["quiet", "audit=0", "audit=1", "console=a", "console=b", "ip=x", "ip=y"]), max_size=5
)


@given(TOKENS, st.lists(st.sampled_from(["quiet", "audit=1", "ip=x"]), max_size=2, unique=True), TOKENS)
def test_what_a_config_takes_away_leaves_and_comes_back(line: list[str], wanted: list[str], absent: list[str]) -> None:
    """From no config to one, and back. ``own`` is what the store has of the families that the config names."""
    none = MachineConfig("")
    config = MachineConfig("", kernel_arguments=tuple(wanted), absent_arguments=tuple(sorted({*absent} - {*wanted})))
    own = [token for family in families_of(config.named_arguments) for token in members(line, family)]
    left = tuple(token for token in own if token not in config.absent_arguments)
    if (there := target_between(none, config, left)) is None:
        assert config == none
        return
    after = merged_arguments(line, there)
    assert not set(after) & set(config.absent_arguments)
    assert set(wanted) <= set(after)
    assert [t for t in line if t not in own] == [t for t in after if t not in (*own, *wanted)], "others stay"
    assert not unmet(there, replace(HERE, kernel_arguments=after)), "the same target needs no second deployment"
    back = target_between(config, none, tuple(own))
    assert back is not None
    assert sorted(merged_arguments(after, back)) == sorted(line)
