# SPDX-License-Identifier: Apache-2.0
"""What rpm-ostree adds to the tables of the base's tests."""

from __future__ import annotations

from typing import Final

WITHOUT: Final = ("fetch-extensions",)
# Units, with the tenths of their exposure as systemd 252 judges it.
HARDENED: Final = (("nodeagent-extensions", 15),)
# Units with a network, and thus with a user of their own.
WITH_NETWORK: Final = ("nodeagent-extensions.service",)
# A command of its own, outside of an update.
STARTS_PROGRAMS: Final = ("features/rpmostree/extensions_image.py",)
