# SPDX-License-Identifier: Apache-2.0
"""What requests for a reboot add to the tables of the base's tests."""

from __future__ import annotations

from typing import Final

from nodeagent.features.reboot_on_request.decide import RebootRequestChanged, RebootRequiredChanged

EVENTS: Final = (RebootRequestChanged(None, message="the message"), RebootRequiredChanged(None))
REQUESTS: Final = {"reboot --now --yes": ("RequestReboot",)}
CHANGES: Final = ("RequestReboot",)
