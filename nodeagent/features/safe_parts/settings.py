# SPDX-License-Identifier: Apache-2.0
"""The setting of the feature."""

from __future__ import annotations

from typing import Literal

from nodeagent.settings.part import Part


class SafePartsSettings(Part, frozen=True, forbid_unknown_fields=True):
    """Parts of a config that is blocked.

    ``on_blocked``: what to do with a config of which a part cannot be applied now: a reboot or a drain that may not
    happen, a closed window, a failed OS update, or drift. hold: nothing of it is applied before the rest.
    apply-safe-parts: its changes that need no drain and no reboot are applied at once, also outside of windows and
    without a slot. Reloads and restarts that the policy lists without a drain are among them.
    """

    on_blocked: Literal["hold", "apply-safe-parts"] = "hold"
