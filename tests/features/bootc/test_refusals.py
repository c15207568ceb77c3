# SPDX-License-Identifier: Apache-2.0
"""What no update of a host of bootc can do."""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.plan.deployment import OsTarget, target_between
from nodeagent.errors import Terminal, Unreconcilable
from nodeagent.features.bootc.host import refuse_layered, refuse_packages
from nodeagent.features.bootc.image import refuse_bound
from nodeagent.host.ostree.sysroot import Origin

EXTENSIONS_IMAGE = f"quay.io/example/extensions@sha256:{'1' * 64}"


def target(**spec: Any) -> OsTarget:
    between = target_between(MachineConfig(name="a"), MachineConfig(name="b", **spec))
    assert between is not None
    return between


@pytest.mark.parametrize(
    ("spec", "paths"),
    [
        ({"extensions": ("usbguard",)}, ["spec.extensions"]),
        ({"extensions": ("usbguard",), "extensions_image": EXTENSIONS_IMAGE}, ["spec.extensions"]),
        ({"extensions": ("ipsec",)}, ["spec.extensions"]),
        ({"kernel_type": "realtime"}, ["spec.kernelType"]),
        ({"kernel_type": "64k-pages", "extensions": ("usbguard",)}, ["spec.extensions", "spec.kernelType"]),
        ({"kernel_arguments": ("nosmt",)}, []),
        # The controller of a pool names it in each config.
        ({"kernel_arguments": ("nosmt",), "extensions_image": EXTENSIONS_IMAGE}, []),
    ],
)
def test_nothing_is_layered(spec: Any, paths: list[str]) -> None:
    if not paths:
        refuse_packages(target(**spec))
        return
    with pytest.raises(Unreconcilable) as refused:
        refuse_packages(target(**spec))
    assert refused.value.reason == "NoLayering"
    assert [problem.path for problem in refused.value.problems] == paths


def test_packages_that_leave_a_config_are_no_obstacle() -> None:
    old = MachineConfig(name="a", extensions=("usbguard",), kernel_type="realtime")
    without = target_between(old, MachineConfig(name="b"))
    assert without is not None
    refuse_packages(without)


@pytest.mark.parametrize(
    ("origin", "found"),
    [
        ({"origin": {"refspec": "x"}}, ""),
        ({"origin": {"refspec": "x"}, "packages": {"requested": "vim;"}}, r"\[packages\] requested=vim"),
        ({"overrides": {"remove": "nano;"}}, r"\[overrides\] remove=nano"),
        ({"rpmostree": {"regenerate-initramfs": "true"}}, r"\[rpmostree\] regenerate-initramfs=true"),
        # What rpm-ostree leaves of packages that it took away.
        ({"packages": {}, "overrides": {"remove": ";"}, "rpmostree": {"regenerate-initramfs": "false"}}, ""),
        ({}, ""),
    ],
)
def test_a_host_with_layers(origin: Origin, found: str) -> None:
    if not found:
        refuse_layered(origin, "os-1.0")
        return
    with pytest.raises(Unreconcilable, match=rf"os-1\.0 has changes of rpm-ostree \({found}\)") as refused:
        refuse_layered(origin, "os-1.0")
    assert refused.value.reason == "HasLayers"


def test_an_image_with_bound_images() -> None:
    refuse_bound(())
    with pytest.raises(Terminal, match=r"app\.image") as refused:
        refuse_bound(("app.image",))
    assert refused.value.reason == "BoundImages"
