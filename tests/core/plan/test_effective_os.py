# SPDX-License-Identifier: Apache-2.0
"""The part of a config that the booted deployment has: tables, and a property about the target of an update."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.packages import packages_of, replaced_of
from nodeagent.core.plan.deployment import Deployment, target_between, unmet
from nodeagent.core.plan.effective import asks_of_os, mismatches_of, os_in_force

A, B, C = (f"quay.example/os@sha256:{letter * 64}" for letter in "abc")
MIRRORED = A.replace("quay.example", "mirror.example")
TAG = "quay.example/os:latest"


def config(**fields: Any) -> MachineConfig:
    return MachineConfig("x", **fields)


def host(image: str = A, *arguments: str, like: MachineConfig | None = None) -> Deployment:
    """A deployment with this image, and what ``like`` asks for besides."""
    like = like or MachineConfig("")
    digest = image.rpartition("@")[2]
    return Deployment(
        "os-1.0",
        digest,
        "os",
        digest=digest,
        packages=packages_of(like),
        removed=replaced_of(like),
        kernel_arguments=("root=LABEL=root", *arguments, *like.kernel_arguments),
        booted=True,
    )


@pytest.mark.parametrize(
    ("wanted", "there", "wrong"),
    [
        (config(), host(), set()),
        (config(os_image_url=A), host(A), set()),
        (config(os_image_url=A), host(B), {"osImageURL:osImageURL"}),
        (config(os_image_url=TAG), host(B), set()),
        (config(kernel_arguments=("nosmt",)), host(A, "nosmt"), set()),
        (config(kernel_arguments=("nosmt",)), host(), {"kernelArguments:kernelArguments"}),
        (config(absent_arguments=("quiet",)), host(A, "nosmt"), set()),
        (config(absent_arguments=("quiet",)), host(A, "quiet"), {"kernelArguments:kernelArguments"}),
        (config(extensions=("usbguard",)), host(), {"extensions:extensions"}),
        (config(kernel_type="realtime"), host(), {"extensions:extensions", "kernelType:kernelType"}),
    ],
)
def test_mismatches(wanted: MachineConfig, there: Deployment, wrong: set[str]) -> None:
    assert set(mismatches_of(wanted, there)) == wrong


def test_a_config_without_an_os_asks_for_nothing() -> None:
    assert not asks_of_os(config())
    for fields in (
        {"os_image_url": A},
        {"kernel_arguments": ("a",)},
        {"extensions": ("b",)},
        {"kernel_type": "realtime"},
    ):
        assert asks_of_os(config(**fields))


@pytest.mark.parametrize(
    ("candidates", "there", "image"),
    [
        ([config(os_image_url=A)], host(A), A),
        ([config(os_image_url=A), config(os_image_url=B)], host(B), B),
        ([config(os_image_url=A), config(os_image_url=B)], host(C), A),
        ([config(os_image_url=B)], host(C), ""),
        ([config(os_image_url=TAG)], host(A), TAG),
        ([config(os_image_url=TAG), config(os_image_url=A)], host(A), A),
        ([config(os_image_url=A), config(os_image_url=TAG)], host(C), A),
        ([config(os_image_url=A), config(os_image_url=MIRRORED)], host(A), MIRRORED),  # the same, so no change
        ([config(os_image_url=A), config(os_image_url=MIRRORED)], host(B), A),
        ([config(os_image_url=A), config()], host(A), A),
        ([config(os_image_url=A), config()], host(B), ""),
    ],
)
def test_the_image_in_force(candidates: list[MachineConfig], there: Deployment, image: str) -> None:
    assert os_in_force(candidates[0], candidates, candidates[-1], there).os_image_url == image


@pytest.mark.parametrize(
    ("old", "new", "there", "arguments"),
    [
        (("a",), ("b",), ("a",), ("a",)),
        (("a",), ("b",), ("b",), ("b",)),
        (("a",), ("b",), ("a", "b"), ("a", "b")),  # half-way: a is still to go
        (("a",), ("b",), (), ()),
        (("a",), (), ("a", "own"), ("a",)),
        (("x=1", "x=2"), ("x=1", "x=2"), ("x=2", "x=1"), ("x=2", "x=1")),
        # Another program has appended a value, which takes the effect of that of the config away.
        ((), ("c=1",), ("c=1", "c=2"), ()),
        (("c=1",), ("c=1",), ("c=1", "c=2"), ()),
        (("a", "c=1"), ("a", "c=1"), ("a", "c=1", "c=2"), ("a",)),
        (("ip=1",), ("ip=1",), ("ip=1", "ip=2"), ("ip=1",)),  # each value counts
    ],
)
def test_the_arguments_in_force(old: Any, new: Any, there: Any, arguments: Any) -> None:
    candidates = [config(kernel_arguments=old), config(kernel_arguments=new)]
    assert os_in_force(candidates[0], candidates, candidates[1], host(A, *there)).kernel_arguments == arguments


def test_a_kernel_that_is_neither() -> None:
    """An admin removed a package of the kernel: neither the default nor the requested kernel."""
    there = replace(host(), removed=frozenset({"kernel-core"}))
    candidates = [config(), config(kernel_type="realtime")]
    assert os_in_force(candidates[0], candidates, candidates[1], there).kernel_type == "default"


def test_a_kernel_where_the_image_lacks_parts_of_its_own() -> None:
    realtime = config(kernel_type="realtime")
    there = replace(host(like=realtime), removed=frozenset({"kernel", "kernel-core", "kernel-modules"}))
    assert not mismatches_of(realtime, there)
    assert os_in_force(config(), [config(), realtime], realtime, there).kernel_type == "realtime"


tokens = st.lists(st.sampled_from(["a", "b", "c=1", "c=2"]), max_size=3, unique=True).map(tuple)
configs = st.builds(
    config,
    os_image_url=st.sampled_from([A, B, C]),
    kernel_arguments=tokens,
    extensions=st.lists(st.sampled_from(["usbguard", "sysstat"]), max_size=2, unique=True).map(sorted).map(tuple),
    kernel_type=st.sampled_from(["default", "realtime"]),
)


@given(st.lists(configs, min_size=1, max_size=3), configs, configs)
def test_the_target_from_there_is_empty_exactly_when_the_host_is_as_desired(
    known: list[MachineConfig], new: MachineConfig, really: MachineConfig
) -> None:
    """Whatever mixture is booted: what already matches is no change, and what does not is asked for."""
    there = host(really.os_image_url, like=really)
    candidates = [*known, new]
    target = target_between(os_in_force(known[0], candidates, new, there), new)
    if mismatches_of(new, there):
        assert target is not None
        assert unmet(target, there)
    leftovers = {token for one in known for token in one.kernel_arguments} - set(new.kernel_arguments)
    if target is None:
        assert not mismatches_of(new, there)
        assert not leftovers & set(there.kernel_arguments)


@given(configs)
def test_what_the_host_has_already_is_no_change(new: MachineConfig) -> None:
    there = host(new.os_image_url, "own=1", like=new)
    assert target_between(os_in_force(replace(new, files={}), [new], new, there), new) is None
