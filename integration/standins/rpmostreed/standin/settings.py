# SPDX-License-Identifier: Apache-2.0
"""Paths, and the config file of the daemon.

The environment moves what tests must move; everything else is where the real daemon has it.
"""

from __future__ import annotations

import argparse
import configparser
import os
from dataclasses import dataclass
from pathlib import Path

from integration.standins.rpmostreed.standin.profile import PROFILES, Profile

CONFIG = Path("/etc/rpm-ostreed.conf")
REGISTRY = Path("/var/lib/rpmostreed-standin/registry")
FAULTS = Path("/run/rpmostreed-standin.json")
POLICIES = ("none", "check", "stage", "apply")


@dataclass(frozen=True, slots=True)
class Settings:
    profile: Profile
    sysroot: str = "/"
    bus_address: str | None = None  # None: the system bus
    registry: Path = REGISTRY
    faults: Path = FAULTS
    force_close_seconds: int = 30
    idle_spread_seconds: int = 4  # the real one adds up to this much at random


@dataclass(frozen=True, slots=True)
class DaemonConfig:
    """[Daemon] of rpm-ostreed.conf. Bad values fall back to the defaults, as in the real daemon."""

    idle_exit_timeout: int = 60  # seconds; 0 never
    automatic_update_policy: str = "none"
    lock_layering: bool = False


def parse(argv: list[str]) -> Settings:
    parser = argparse.ArgumentParser(prog="rpmostreed-standin", description=__doc__)
    parser.add_argument("--like", type=int, choices=sorted(PROFILES), default=_number("LIKE", 2026))
    parser.add_argument("--sysroot", default=_text("SYSROOT", "/"))
    parser.add_argument("--registry", type=Path, default=_text("REGISTRY", str(REGISTRY)))
    parser.add_argument("--faults", type=Path, default=_text("FAULTS", str(FAULTS)))
    arguments = parser.parse_args(argv)
    return Settings(
        profile=PROFILES[arguments.like],
        sysroot=arguments.sysroot,
        bus_address=os.environ.get("DBUS_SYSTEM_BUS_ADDRESS"),
        registry=arguments.registry,
        faults=arguments.faults,
        force_close_seconds=_number("FORCE_CLOSE", 30),
        idle_spread_seconds=_number("IDLE_SPREAD", 4),
    )


def daemon_config(path: Path = CONFIG) -> DaemonConfig:
    """Raises ValueError with the real daemon's words for an unknown update policy, the only thing it refuses."""
    file = configparser.ConfigParser(interpolation=None, strict=False)
    file.read(path)
    section = file["Daemon"] if file.has_section("Daemon") else {}
    policy = section.get("AutomaticUpdatePolicy", "none").lower()
    policy = {"ex-stage": "stage", "off": "none"}.get(policy, policy)
    if policy not in POLICIES:
        raise ValueError(f"Invalid value for AutomaticUpdatePolicy: '{policy}'")
    timeout = section.get("IdleExitTimeout", "60")
    return DaemonConfig(
        idle_exit_timeout=int(timeout) if timeout.isdecimal() else 60,
        automatic_update_policy=policy,
        lock_layering=section.get("LockLayering", "false").lower() in ("true", "1"),
    )


def _text(name: str, default: str) -> str:
    return os.environ.get(f"RPMOSTREED_STANDIN_{name}", default)


def _number(name: str, default: int) -> int:
    return int(_text(name, str(default)))
