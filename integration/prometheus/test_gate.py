# SPDX-License-Identifier: Apache-2.0
"""The gate for alerts against a real Prometheus with TLS."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.prometheus.server import START, Prometheus, Server
from integration.prometheus.test_prometheus import prometheus
from nodeagent.errors import AgentError, Refused
from nodeagent.features.alerts.prometheus import PrometheusAlerts
from nodeagent.features.alerts.reasons import AlertReason
from nodeagent.features.alerts.settings import AlertSettings

__all__ = ["prometheus"]

pytestmark = pytest.mark.long

ALERT = "ClusterIsIll"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1, which is its own authority, and its key."""
    directory = tmp_path_factory.mktemp("tls")
    certificate, key = directory / "cert.pem", directory / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=prometheus", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, "-out", certificate, "-keyout", key], check=True, capture_output=True, timeout=60)
    return certificate, key


@pytest.fixture(scope="module")
def server(prometheus: Prometheus, authority: tuple[Path, Path]) -> Iterator[Server]:
    with prometheus.firing(ALERT, *authority) as running:
        yield running


async def asked(server: Server, **settings: str) -> str:
    """Return the result of a check: "", a warning, or the reason of an error."""
    try:
        return await PrometheusAlerts(AlertSettings(url=server.address, **settings)).check()  # type: ignore[arg-type]
    except AgentError as error:
        return str(error.reason)


async def test_it_holds_while_an_alert_fires(server: Server, authority: tuple[Path, Path]) -> None:
    ca = str(authority[0])
    async with asyncio.timeout(START):
        while not (found := await asked(server, ca=ca)):
            await asyncio.sleep(0.2)
    assert found == AlertReason.ALERTS_FIRING
    with pytest.raises(Refused, match=f"1 firing: {ALERT}"):
        await PrometheusAlerts(AlertSettings(url=server.address, ca=ca)).check()
    assert await asked(server, ca=ca, query='ALERTS{alertname="Another"}') == ""


async def test_a_query_that_is_wrong_holds_whatever_is_set(server: Server, authority: tuple[Path, Path]) -> None:
    for query in ("up{", "1"):
        found = await asked(server, ca=str(authority[0]), query=query, on_unreachable="go")
        assert found == AlertReason.ALERTS_REJECTED, query


async def test_an_unknown_certificate_is_as_set(server: Server) -> None:
    assert await asked(server) == AlertReason.ALERTS_UNREACHABLE
    assert "certificate is not accepted" in await asked(server, on_unreachable="go")
