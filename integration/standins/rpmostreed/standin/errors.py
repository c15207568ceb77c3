# SPDX-License-Identifier: Apache-2.0
"""Errors as they reach D-Bus. GLib makes the names: an unregistered G_IO_ERROR becomes UnmappedGError...CodeN."""

from __future__ import annotations

from typing import Any

from integration.standins.rpmostreed.standin.gir import Gio, GLib


class StandInError(Exception):
    """Base. `str()` is the text that the client reads."""

    def reply(self, invocation: Any) -> None:
        """Answer a method call with this."""
        _io(invocation, Gio.IOErrorEnum.FAILED, str(self))


class Failed(StandInError):
    """The error of nearly all failures of the real daemon (Code0 on a method)."""


class NotFound(StandInError):
    def reply(self, invocation: Any) -> None:
        _io(invocation, Gio.IOErrorEnum.NOT_FOUND, str(self))


class Busy(StandInError):
    """G_IO_ERROR_BUSY: Code26, for a transaction in this daemon and for the sysroot lock alike."""

    def reply(self, invocation: Any) -> None:
        _io(invocation, Gio.IOErrorEnum.BUSY, str(self))


class Named(StandInError):
    """One of the few errors that have a D-Bus name of their own."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name

    def reply(self, invocation: Any) -> None:
        invocation.return_dbus_error(self.name, str(self))


class InstantSuccess(Exception):
    """Injected: end the transaction now, as if all had gone well."""


def denied(text: str) -> Named:
    return Named("org.freedesktop.DBus.Error.AccessDenied", text)


def bus_failed(text: str) -> Named:
    return Named("org.freedesktop.DBus.Error.Failed", text)


def daemon_failed(text: str) -> Named:
    return Named("org.projectatomic.rpmostreed.Error.Failed", text)


def invalid_refspec(text: str) -> Named:
    return Named("org.projectatomic.rpmostreed.Error.InvalidRefspec", text)


def text_of(error: BaseException) -> str:
    """The message without GLib's domain and code around it."""
    return str(error.message) if isinstance(error, GLib.Error) else str(error)


def _io(invocation: Any, code: Any, text: str) -> None:
    invocation.return_error_literal(Gio.io_error_quark(), code, text)
