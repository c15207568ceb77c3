# SPDX-License-Identifier: Apache-2.0
"""The settings of the feature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, get_args

from msgspec import Meta

from nodeagent.settings.part import Part

# What Ignition sets up when a host is installed. All but the last have an override of the same kind in OpenShift.
_Name = Literal["storage.disks", "storage.filesystems", "storage.raid", "storage.luks"]
ACCEPTABLE: Final[Mapping[str, str]] = dict.fromkeys(get_args(_Name), "irreconcilable.accept")

Section = Annotated[
    _Name,
    Meta(description="storage.disks, storage.filesystems, storage.raid or storage.luks"),
]


class IrreconcilableSettings(Part, frozen=True, forbid_unknown_fields=True):
    """Sections of a config that a running host cannot take.

    ``accept``: sections that may change all the same. The rest of the config is applied, and the host keeps what it was
    installed with, as with irreconcilableValidationOverrides of OpenShift's MachineConfiguration. Empty: such a config
    is rejected.
    """

    group = "irreconcilable"

    accept: tuple[Section, ...] = ()
