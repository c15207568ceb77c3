# SPDX-License-Identifier: Apache-2.0
"""The checks of settings that depend on each other: pairs of which each value is good, and that contradict.

Each pair names its keys, so that the problem has the file and the line of those that are set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from nodeagent.errors import InvalidInput, Problem
from nodeagent.settings.check import invalid
from nodeagent.settings.part import Contradiction, parts
from nodeagent.settings.schema import Settings

# These name the peers and the store of the process: a loop that changed them while it runs could act for two nodes.
FIXED: Final = ("desired_config", "state_dir", "node_name", "cluster")


def check_consistency(settings: Settings, origins: Mapping[str, str] = MappingProxyType({})) -> None:
    """Check the settings that depend on each other, or on this host. Blocks: it reads files of the host.

    ``origins`` maps each key that is set to its ``file:line``. Raises ``InvalidInput`` (``SettingsInvalid``, and
    reasons of features).
    """
    problems: list[Problem] = []
    for keys, message in contradictions(settings):
        # Without an origin, a value is a default: the file to correct has the other one.
        places = list(dict.fromkeys(origins[key] for key in keys if key in origins))
        problems += [Problem(place, message) for place in places] or [Problem("", message)]
    if problems:
        raise invalid(problems)
    for kind in parts():
        try:
            settings.of(kind).check_host()
        except InvalidInput as error:
            # A feature knows the key only, and a value that no file has is a default.
            placed = [Problem(origins.get(problem.path, ""), problem.message) for problem in error.problems]
            raise invalid(placed, error.reason) from None


def contradictions(settings: Settings) -> Iterator[Contradiction]:
    """Yield every pair of settings that cannot both take effect."""
    yield from _of_cluster(settings)
    yield from _of_times(settings)
    yield from _of_paths(settings)
    for kind in parts():
        yield from settings.of(kind).contradictions(settings)


def fixed_change(old: Settings, new: Settings) -> str:
    """Return a setting, or a group of them, that differs and requires a restart; "" if none does."""
    changed = [name for name in FIXED if getattr(old, name) != getattr(new, name)]
    changed += [kind.group for kind in parts() if kind.needs_restart and old.of(kind) != new.of(kind)]
    return changed[0] if changed else ""


def _of_cluster(settings: Settings) -> Iterator[Contradiction]:
    cluster = settings.cluster
    # Which of two identities the agent has must not depend on an order in the code.
    if cluster.kubeconfig and cluster.service_account:
        keys = ("cluster.kubeconfig", "cluster.service_account")
        yield keys, "set cluster.kubeconfig or cluster.service_account, not both"
    if cluster.source == "cluster" and not cluster.configured:
        message = "cluster.source: cluster needs a cluster (cluster.kubeconfig or cluster.service_account)"
        yield ("cluster.source",), message


def _of_times(settings: Settings) -> Iterator[Contradiction]:
    settle, timeout = settings.actions.settle, settings.verify.timeout
    # A unit that must be up for longer than it may take to be well is never well, and each restart ends in a reboot.
    if settle >= timeout:
        message = f"actions.settle ({settle:g}) is part of verify.timeout ({timeout:g}), so it must be less"
        yield ("actions.settle", "verify.timeout"), message


def _of_paths(settings: Settings) -> Iterator[Contradiction]:
    """Yield the files that two settings name: one would overwrite or misread the other."""
    named = {key: getattr(settings, key) for key in ("desired_config", "policy", "state_dir")}
    named["metrics.file"] = settings.metrics.file
    keys = sorted(named)
    for index, key in enumerate(keys):
        for other in keys[index + 1 :]:
            if named[key] and named[key].rstrip("/") == named[other].rstrip("/"):
                yield (key, other), f"{key} and {other} are the same path"
