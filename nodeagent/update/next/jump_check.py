# SPDX-License-Identifier: Apache-2.0
"""Check whether the OS of this host may go to the image of an update, with the facts about this host."""

from __future__ import annotations

from nodeagent.core.config.file_tree import RegularFile, expand
from nodeagent.core.config.image import content_id
from nodeagent.core.plan.deployment import contents, merged_arguments
from nodeagent.core.plan.jumps.release import Jump, Release
from nodeagent.core.plan.steps import RemovePath
from nodeagent.update.run import Ports, Update


async def check_jump(ports: Ports, update: Update, *, staged: bool = False) -> None:
    """Check whether the OS of this host may go to the image of an update, and keep what is worth a note.

    Called before the staging, and again after it (``staged``): the version of an image is known before it is on the
    host only if a graph, the file of the admin or an earlier staging names it. Raises as ``JumpGate.check``.
    """
    target = update.target
    if ports.jumps is None or ports.os is None or target is None or target.image is None:
        return
    booted = await ports.os.booted()
    # A rule may require a file, so the files are those that the update leaves behind.
    managed = {path: entry.content for path, entry in expand(update.new).items() if isinstance(entry, RegularFile)}
    removed = dict.fromkeys(step.path for step in update.writes if isinstance(step, RemovePath))
    jump = Jump(
        Release(booted.version, contents(booted)),
        Release(ports.os.version_of(target.image), frozenset({content_id(target.image)})),
        merged_arguments(booted.kernel_arguments, target),
        {**removed, **managed},
        staged,
    )
    answer = await ports.jumps.check(jump)
    update.jump_notes = answer.notes
    update.add_notes(*answer.warnings)
