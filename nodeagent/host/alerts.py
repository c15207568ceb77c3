"""Ask Prometheus, or a server with its API, whether alerts are firing that must keep this node from being disrupted.

A server that does not answer holds the update or does not, as set. A server that rejects the request always holds it:
that is a mistake in the settings, which an admin would not notice otherwise.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from nodeagent.core.coordination.alerts import firing, incomplete, rejection
from nodeagent.core.report.display import text
from nodeagent.core.report.redact import redact
from nodeagent.errors import Refused, Unreachable
from nodeagent.host.fs.read_inside import read_regular
from nodeagent.reasons import Reason
from nodeagent.settings.cluster import AlertSettings

if TYPE_CHECKING:
    from nodeagent.host.http import Answer

__all__ = ["PrometheusAlerts"]

# Seconds for the whole request. A query of alerts takes milliseconds.
TIMEOUT: Final = 15.0

MAX_TOKEN: Final = 16 * 1024

TOO_MANY_REQUESTS: Final = 429


@dataclass(slots=True)
class PrometheusAlerts:
    """Implements ``ports.AlertGate``."""

    settings: AlertSettings
    timeout: float = TIMEOUT

    def use(self, settings: AlertSettings) -> None:
        self.settings = settings

    @property
    def query(self) -> str:
        return self.settings.query if self.settings.url else ""

    async def check(self) -> str:
        if not self.settings.url:
            return ""
        try:
            self._judge(await self._ask())
        except Unreachable as error:
            if self.settings.on_unreachable == "hold":
                raise
            return error.message
        return ""

    async def _ask(self) -> Answer:
        # Most hosts have no such server, and the modules for HTTP and TLS are large.
        from nodeagent.host.http import HttpFault, request, tls_context

        url = self.settings.url.rstrip("/")
        try:
            # Certificates and tokens are rotated, so they are read for each request.
            token = await asyncio.to_thread(self._token)
            tls = await asyncio.to_thread(tls_context, self.settings.ca) if url.startswith("https:") else None
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise self._rejected(f"the token or the authority cannot be used: {why}") from error
        headers = {"Authorization": f"Bearer {token}"} if token else None
        target = f"{url}/api/v1/query?{urlencode({'query': self.settings.query})}"
        try:
            return await request("GET", target, headers=headers, tls=tls, timeout=self.timeout)
        except HttpFault as fault:
            raise self._unreachable(str(fault)) from fault

    def _token(self) -> str:
        """Return the token, "" for none. Raises ``OSError`` and ``ValueError``, without the content."""
        if not self.settings.token_file:
            return ""
        token = read_regular(self.settings.token_file, MAX_TOKEN).strip()
        # Any other character could add a header to the request.
        if not token or not all(0x21 <= each <= 0x7E for each in token):
            raise ValueError(f"{self.settings.token_file} has no token")
        return token.decode("ascii")

    def _judge(self, answer: Answer) -> None:
        """Raise ``Refused`` (``AlertsFiring``, ``AlertsRejected``) or ``Unreachable`` (``AlertsUnreachable``)."""
        status, body = answer.status, answer.json()
        if status != 200:
            why = f"status {status}" + (f", {rejection(body)}" if rejection(body) else "")
            if status >= 500 or status == TOO_MANY_REQUESTS:
                raise self._unreachable(why)
            raise self._rejected(why)
        if not body:
            raise self._unreachable("the answer is no JSON object")
        try:
            found = firing(body)
        except ValueError as error:
            raise self._rejected(str(error)) from error
        if found:
            raise Refused(_clean(f"alerts: {found}"), reason=Reason.ALERTS_FIRING)
        if why := incomplete(body):
            raise self._unreachable(f"the answer is incomplete: {why}")

    def _rejected(self, why: str) -> Refused:
        return Refused(_clean(f"{self.settings.url}: {why}"), reason=Reason.ALERTS_REJECTED)

    def _unreachable(self, why: str) -> Unreachable:
        return Unreachable(_clean(f"{self.settings.url}: {why}"), reason=Reason.ALERTS_UNREACHABLE)


def _clean(message: str) -> str:
    return text(redact(message))
