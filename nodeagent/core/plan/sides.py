# SPDX-License-Identifier: Apache-2.0
"""The files on both sides of an update, as the programs of the host read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from nodeagent.core.config.file_tree import DEV_NULL, FileTreeEntry, RegularFile, SymbolicLink, expand
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.plan.change import Action

NO_CONFIG = MachineConfig("")


@dataclass(frozen=True, slots=True)
class HostView:
    """Files of the host that programs read: path to content. Empty for a plan without a host.

    ``other_unit_files`` are units whose file leaves with the config, and of which the host has another file.
    ``disabled_again`` are units whose entry enables them and leaves, and that no link enables then.
    ``restored`` has what comes back at paths that leave the config: the version from before they were managed, or that
    of the OS. ``rejected`` are actions of built-in entries that systemd would reject.
    """

    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    other_unit_files: frozenset[str] = frozenset()
    disabled_again: frozenset[str] = frozenset()
    restored: Mapping[str, FileTreeEntry] = field(default_factory=dict, repr=False)
    rejected: frozenset[Action] = frozenset()


@dataclass(frozen=True)
class Sides:
    """Both configs of an update, and the files of the host, which are those of the old side.

    Without an update both configs are empty, and both sides are the host as it is.
    """

    old: MachineConfig = NO_CONFIG
    new: MachineConfig = NO_CONFIG
    host: HostView = HostView()
    # What domains computed from these sides, by their names: each change of a plan asks for it.
    kept: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def before(self) -> Mapping[str, bytes]:
        """Path to content before the update, with the files that no config manages. A masked unit is empty."""
        # The config counts before the disk: a managed file that differs is drift, and no part of this update.
        return {**self.host.files, **self._managed_before}

    @cached_property
    def after(self) -> Mapping[str, bytes]:
        """Path to content after the update. A path that leaves the config is removed, or restored."""
        unmanaged = {path: content for path, content in self.host.files.items() if path not in self._managed_before}
        return {**unmanaged, **_texts(self.host.restored), **_contents(self.new)}

    @cached_property
    def _managed_before(self) -> Mapping[str, bytes]:
        return _contents(self.old)


def _contents(config: MachineConfig) -> dict[str, bytes]:
    return _texts(expand(config))


def _texts(tree: Mapping[str, FileTreeEntry]) -> dict[str, bytes]:
    texts: dict[str, bytes] = {}
    for path, entry in tree.items():
        if isinstance(entry, RegularFile):
            texts[path] = entry.content
        elif isinstance(entry, SymbolicLink) and entry.target == DEV_NULL:
            texts[path] = b""
    return texts
