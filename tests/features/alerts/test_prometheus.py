# SPDX-License-Identifier: Apache-2.0
"""The gate for alerts against an HTTPS server that answers as Prometheus does, and as it should not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from nodeagent.errors import AgentError, InvalidInput
from nodeagent.features.alerts.prometheus import PrometheusAlerts
from nodeagent.features.alerts.reasons import AlertReason
from nodeagent.features.alerts.settings import AlertSettings
from nodeagent.settings.consistency import check_consistency
from nodeagent.settings.schema import Settings
from tests.support.tls_server import PATIENT, SHORT, TlsServer, http, pair, serving

__all__ = ["pair"]

SECRET = "eyJhbGciOiJSUzI1NiJ9.Zm9vYmFyYmF6.c2lnbmF0dXJl"


def vector(*metrics: dict[str, str], **more: Any) -> bytes:
    result = [{"metric": metric, "value": [1700000000.123, "1"]} for metric in metrics]
    return http(200, {"status": "success", "data": {"resultType": "vector", "result": result}, **more})


def alert(name: str, **labels: str) -> dict[str, str]:
    return {"__name__": "ALERTS", "alertname": name, "alertstate": "firing", "severity": "critical", **labels}


async def asked(
    answer: bytes, pair: tuple[str, str], *, timeout: float = PATIENT, stall: bool = False, **settings: Any
) -> tuple[str, TlsServer]:
    """Return the result of a check: "", a warning, or the reason and the message of an error."""
    async with serving(TlsServer(answer, stall), pair) as server:
        given = {"url": f"https://127.0.0.1:{server.port}/prom", "ca": pair[0], **settings}
        gate = PrometheusAlerts(AlertSettings(**given), timeout)
        try:
            found = await gate.check()
        except AgentError as error:
            found = f"{error.reason}: {error.message}"
        return found.replace(f"https://127.0.0.1:{server.port}/prom", "URL"), server


async def test_without_an_address_nothing_is_asked() -> None:
    gate = PrometheusAlerts(AlertSettings())
    assert (await gate.check(), gate.query) == ("", "")


async def test_no_alert_lets_the_update_begin(pair: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{SECRET}\n")
    found, server = await asked(vector(), pair, token_file=str(tmp_path / "token"))
    assert found == ""
    first, *headers = server.requests[0].split("\r\n")
    method, target, _ = first.split()
    assert (method, urlsplit(target).path) == ("GET", "/prom/api/v1/query")
    assert parse_qs(urlsplit(target).query) == {"query": ['ALERTS{alertstate="firing", severity="critical"}']}
    assert f"Authorization: Bearer {SECRET}" in headers


async def test_the_names_of_the_alerts_are_in_the_message_a_few_of_them(pair: tuple[str, str]) -> None:
    found, _ = await asked(vector(alert("KubeAPIDown"), alert("EtcdSlow", pod="a"), alert("EtcdSlow", pod="b")), pair)
    assert found == "AlertsFiring: alerts: 3 firing: KubeAPIDown, EtcdSlow"
    found, _ = await asked(vector(*(alert(f"A{number}") for number in range(900))), pair)
    assert found == "AlertsFiring: alerts: 900 firing: A0, A1, A2, A3, A4 and 895 more"


@pytest.mark.parametrize(
    ("metric", "name"),
    [
        ({}, "a series without labels"),
        ({"__name__": "up", "job": "x"}, "up"),
        ({"job": "node", "instance": "a"}, "instance=a"),
        ({"alertname": "x" * 5000}, "x" * 100),
        ({"alertname": "bad\x1b[31m\nname"}, r"bad\x1b[31m name"),
        ({"alertname": "password=hunter2"}, "password=[redacted]"),
    ],
)
async def test_names_are_bounded_and_harmless(pair: tuple[str, str], metric: dict[str, str], name: str) -> None:
    assert (await asked(vector(metric), pair))[0] == f"AlertsFiring: alerts: 1 firing: {name}"


BAD_QUERY = {"status": "error", "errorType": "bad_data", "error": "1:7: parse error: unexpected end of input"}
SCALAR = {"status": "success", "data": {"resultType": "scalar", "result": [1700000000, "1"]}}
ODD = {"status": "success", "data": {"resultType": "vector", "result": ["x", 7, {"metric": 1}]}}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (http(400, BAD_QUERY), "status 400, 1:7: parse error: unexpected end of input"),
        (http(401, b"no"), "status 401"),
        (http(403, {"error": ["x"]}), "status 403"),
        (http(302, b"", "Location: https://elsewhere.example/\r\n"), "status 302"),
        (http(200, SCALAR), "the query returns a scalar, and not a vector"),
        (http(200, {"status": "success"}), "the answer is not that of Prometheus"),
        (http(200, {"status": "error", "data": {}}), "the answer is not that of Prometheus"),
    ],
)
@pytest.mark.parametrize("then", ["hold", "go"])
async def test_a_rejected_request_always_holds(pair: tuple[str, str], answer: bytes, why: str, then: str) -> None:
    assert (await asked(answer, pair, on_unreachable=then))[0] == f"AlertsRejected: URL: {why}"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (http(503, {"status": "error", "error": "query timed out"}), "status 503, query timed out"),
        (http(429, b""), "status 429"),
        (http(200, b"<html>login</html>"), "the answer is no JSON object"),
        (http(200, b"[" * 200_000), "the answer is no JSON object"),
        (http(200, b'{"status": "succ'), "the answer is no JSON object"),
        (http(200, b" " * (5 << 20)), "the answer is larger than 4194304 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}", "the answer is cut off, or is no HTTP"),
        (b"SSH-2.0-OpenSSH\r\n", "the answer is cut off, or is no HTTP"),
        (vector(warnings=["fetch series for store a: unavailable"]), "the answer is incomplete: fetch series for"),
    ],
)
async def test_a_server_that_does_not_answer_holds_or_not_as_set(
    pair: tuple[str, str], answer: bytes, why: str
) -> None:
    assert (await asked(answer, pair))[0].startswith(f"AlertsUnreachable: URL: {why}")
    assert (await asked(answer, pair, on_unreachable="go"))[0].startswith(f"URL: {why}")


async def test_a_slow_server_is_given_up(pair: tuple[str, str]) -> None:
    for answer in (b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"):
        found, _ = await asked(answer, pair, timeout=SHORT, stall=True)
        assert found == "AlertsUnreachable: URL: no answer in 0.5 s"


async def test_alerts_in_an_incomplete_answer_count(pair: tuple[str, str]) -> None:
    found, _ = await asked(vector(alert("Down"), warnings=["partial"]), pair, on_unreachable="go")
    assert found == "AlertsFiring: alerts: 1 firing: Down"


async def test_odd_samples_count_as_alerts(pair: tuple[str, str]) -> None:
    assert (await asked(http(200, ODD), pair))[0] == "AlertsFiring: alerts: 3 firing: a series without labels"


async def test_an_unknown_authority_is_not_trusted(pair: tuple[str, str]) -> None:
    found, server = await asked(vector(), pair, ca="")
    assert found.startswith("AlertsUnreachable: URL: its certificate is not accepted")
    assert server.requests == []


@pytest.mark.parametrize("content", [None, "", "two\nlines", "a b", "x" * 20_000, "é"])
async def test_a_file_without_a_token_holds_and_is_not_quoted(
    pair: tuple[str, str], tmp_path: Path, content: str | None
) -> None:
    if content is not None:
        (tmp_path / "token").write_text(content)
    found, server = await asked(vector(), pair, token_file=str(tmp_path / "token"), on_unreachable="go")
    assert found.startswith("AlertsRejected: URL: the token cannot be used: ")
    assert server.requests == []
    assert not content or content not in found


async def test_a_token_file_that_is_a_pipe_is_not_waited_for(pair: tuple[str, str], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "token")
    found, _ = await asked(vector(), pair, token_file=str(tmp_path / "token"))
    assert found == "AlertsRejected: URL: the token cannot be used: it is no regular file"


async def test_an_authority_that_is_a_pipe_is_not_waited_for(pair: tuple[str, str], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ca.pem")
    found, _ = await asked(vector(), pair, ca=str(tmp_path / "ca.pem"))
    assert found == "AlertsRejected: URL: the authority cannot be used: it is no regular file"


async def test_a_missing_authority_holds(pair: tuple[str, str]) -> None:
    found, _ = await asked(vector(), pair, ca="/nonexistent/ca.pem", on_unreachable="go")
    assert found == "AlertsRejected: URL: the authority cannot be used: No such file or directory"


async def test_a_server_that_is_down() -> None:
    gate = PrometheusAlerts(AlertSettings(url="http://127.0.0.1:1"))
    with pytest.raises(AgentError) as caught:
        await gate.check()
    assert caught.value.reason == AlertReason.ALERTS_UNREACHABLE
    gate.use(AlertSettings(url="http://127.0.0.1:1", on_unreachable="go"))
    assert "Connection refused" in await gate.check()


def test_a_token_is_sent_over_https_only() -> None:
    for url in ("", "http://prometheus.example"):
        with pytest.raises(InvalidInput, match=r"needs an alerts\.url with https"):
            check_consistency(Settings(parts=(AlertSettings(url=url, token_file="/etc/token"),)))
    check_consistency(Settings(parts=(AlertSettings(url="https://prometheus.example", token_file="/etc/token"),)))
