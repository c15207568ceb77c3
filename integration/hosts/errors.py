# SPDX-License-Identifier: Apache-2.0
"""Errors of a test host. Messages are for the reader of a failed test."""

from __future__ import annotations


class HostRingError(Exception):
    """Base of everything that the host ring raises."""


class Unavailable(HostRingError):
    """Raised if this machine cannot boot test hosts. The message names what is missing."""


class CommandFailed(HostRingError):
    """A command ended with a status other than 0, or was still running at its deadline."""


class HostGone(HostRingError):
    """The host is powered off or between two boots, so nothing can be asked of it now."""


class HostTimeout(HostRingError):
    """The host did not reach the awaited state before the deadline."""
