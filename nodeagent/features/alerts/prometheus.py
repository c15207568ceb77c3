# SPDX-License-Identifier: Apache-2.0
"""Ask Prometheus, or a server with its API, whether alerts are firing that must keep this node from being disrupted.

A server that does not answer holds the update or does not, as set. A server that rejects the request always holds it:
that is a mistake in the settings, which an admin would not notice otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from nodeagent.core.display import text
from nodeagent.core.redact import redact
from nodeagent.errors import Refused, Unreachable
from nodeagent.features.alerts.decide import firing, incomplete, rejection
from nodeagent.features.alerts.reasons import AlertReason
from nodeagent.features.alerts.settings import AlertSettings
from nodeagent.host.fs.read_inside import read_regular
from nodeagent.host.http import fetch_json

# Seconds for the whole request. A query of alerts takes milliseconds.
TIMEOUT: Final = 15.0

MAX_TOKEN: Final = 16 * 1024


@dataclass(slots=True)
class PrometheusAlerts:
    """The query of the settings, sent to their server."""

    settings: AlertSettings
    timeout: float = TIMEOUT

    def use(self, settings: AlertSettings) -> None:
        self.settings = settings

    @property
    def query(self) -> str:
        """The query whose result must be empty; "" if nothing is configured."""
        return self.settings.query if self.settings.url else ""

    async def check(self) -> str:
        """Return "" if no alert fires, or why that is not known where the settings let the update begin anyway.

        Raises ``Refused`` (``AlertsFiring``, ``AlertsRejected``) and ``Unreachable`` (``AlertsUnreachable``).
        """
        if not self.settings.url:
            return ""
        try:
            self._judge(await self._answer())
        except Unreachable as error:
            if self.settings.on_unreachable == "hold":
                raise
            return error.message
        return ""

    async def _answer(self) -> Mapping[str, Any]:
        try:
            # Tokens are rotated, so they are read for each request.
            token = await asyncio.to_thread(self._token)
        except (OSError, ValueError) as error:
            cause = getattr(error, "strerror", None) or str(error)
            raise self._rejected(f"the token cannot be used: {cause}") from error
        return await fetch_json(
            f"{self.settings.url.rstrip('/')}/api/v1/query?{urlencode({'query': self.settings.query})}",
            ca=self.settings.ca,
            headers={"Authorization": f"Bearer {token}"} if token else None,
            timeout=self.timeout,
            error_of=rejection,
            unreachable=self._unreachable,
            rejected=self._rejected,
        )

    def _token(self) -> str:
        """Return the token, "" for none. Raises ``OSError`` and ``ValueError``, without the content."""
        if not self.settings.token_file:
            return ""
        token = read_regular(self.settings.token_file, MAX_TOKEN).strip()
        # Any other character could add a header to the request.
        if not token or not all(0x21 <= byte <= 0x7E for byte in token):
            raise ValueError(f"{self.settings.token_file} has no token")
        return token.decode("ascii")

    def _judge(self, body: Mapping[str, Any]) -> None:
        """Raise ``Refused`` (``AlertsFiring``, ``AlertsRejected``) or ``Unreachable`` (``AlertsUnreachable``)."""
        try:
            alerts = firing(body)
        except ValueError as error:
            raise self._rejected(str(error)) from error
        if alerts:
            raise Refused(_clean(f"alerts: {alerts}"), reason=AlertReason.ALERTS_FIRING)
        if warning := incomplete(body):
            raise self._unreachable(f"the answer is incomplete: {warning}")

    def _rejected(self, cause: str) -> Refused:
        return Refused(_clean(f"{self.settings.url}: {cause}"), reason=AlertReason.ALERTS_REJECTED)

    def _unreachable(self, cause: str) -> Unreachable:
        return Unreachable(_clean(f"{self.settings.url}: {cause}"), reason=AlertReason.ALERTS_UNREACHABLE)


def _clean(message: str) -> str:
    return text(redact(message))
