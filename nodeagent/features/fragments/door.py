# SPDX-License-Identifier: Apache-2.0
"""What the feature declares."""

from __future__ import annotations

from typing import Final

from nodeagent.door import Base, Door, Feature
from nodeagent.features.fragments.reasons import FragmentReason


def _open(base: Base) -> Feature:
    from nodeagent.features.fragments.directory import ConfigDirectory
    from nodeagent.host.config_file import names_directory

    settings = base.settings
    if settings.cluster.source != "file" or not names_directory(settings.desired_config):
        return Feature()
    directory = ConfigDirectory(settings.desired_config, base.desired_file, base.ports.files, base.store, base.reporter)
    return Feature(beside=[("the directory of configs", directory.run)])


DOOR: Final = Door(
    title="A directory of MachineConfigs",
    page="usage/merge.md",
    reasons=FragmentReason,
    open=_open,
)
