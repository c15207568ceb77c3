# SPDX-License-Identifier: Apache-2.0
"""Differences between the releases of rpm-ostree that a client may meet. `--like YEAR` picks one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PEER_PATH = "/run/rpm-ostree-transaction.sock"


@dataclass(frozen=True, slots=True)
class Profile:
    """One release, named by its year. 2024 stands for the first months of it, before the lock moved (PR 4939)."""

    year: int
    constant_peer_path: bool  # since 2023-02; before it every transaction had an abstract socket of its own
    leaves_socket_file: bool  # GLib's server removes its socket when it stops, but not in all releases
    legacy_lock_file: bool  # the lock is /run/ostree/staged-deployment-locked instead of a key of the staged state
    first_title: str | None  # before the worker runs; None reaches clients as "" and error texts as "(null)"
    layers: Literal["messages", "tasks", "counted tasks"]  # how the pull of each layer is shown
    importer_prefix: str  # what stands before skopeo's own words when an image cannot be opened
    blob_prefix: str


PROFILES = {
    2022: Profile(
        year=2022,
        constant_peer_path=False,
        leaves_socket_file=False,
        legacy_lock_file=True,
        first_title=None,
        layers="messages",
        importer_prefix="Failed to invoke skopeo proxy method OpenImage: remote error: ",
        blob_prefix="Failed to invoke skopeo proxy method GetBlob: remote error: ",
    ),
    2024: Profile(
        year=2024,
        constant_peer_path=True,
        leaves_socket_file=True,
        legacy_lock_file=True,
        first_title="new-deployment",
        layers="tasks",
        importer_prefix="Creating importer: Failed to invoke skopeo proxy method OpenImage: remote error: ",
        blob_prefix="Failed to invoke skopeo proxy method GetBlob: remote error: ",
    ),
    2026: Profile(
        year=2026,
        constant_peer_path=True,
        leaves_socket_file=False,
        legacy_lock_file=False,
        first_title="new-deployment",
        layers="counted tasks",
        importer_prefix="Preparing import: Fetching manifest: failed to invoke method OpenImage: ",
        blob_prefix="failed to invoke method GetBlob: ",
    ),
}
