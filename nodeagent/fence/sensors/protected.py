"""The workload that the fence protects, and the sources of its latency: etcd on this host, or one of the caller.

The modules that detect etcd are imported on first use, because most hosts have no etcd and never stage anything.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nodeagent.errors import AgentError, Retryable
from nodeagent.host.http import HttpFault, request
from nodeagent.reasons import Reason

if TYPE_CHECKING:
    from nodeagent.host.etcd.detect import Found
    from nodeagent.host.etcd.options import Options

# Seconds for one page of metrics. etcd serves it from memory, so a longer wait means trouble.
TIMEOUT: Final = 3.0

Scrape = Callable[[], Awaitable[str]]


def _no_pids() -> Sequence[int]:
    return ()


@dataclass(frozen=True, slots=True)
class Protected:
    """Each source of the latency may be missing. ``directory``: any directory on its file system, for the probe.
    ``scrape``: returns its metrics as text, with the names of etcd; raises ``AgentError``. ``pids``: returns its
    processes, for priorities; it may block. ``missing``: messages about sources that were not found."""

    directory: Path | None = None
    scrape: Scrape | None = None
    pids: Callable[[], Sequence[int]] = _no_pids
    missing: tuple[str, ...] = ()


async def find_etcd(root: Path = Path("/")) -> Protected | None:
    """Return the member of etcd on this host; None if there is none."""
    from nodeagent.host.etcd.detect import detect

    found = await asyncio.to_thread(detect, root)
    if found is None:
        return None
    directory = await asyncio.to_thread(_data_of, found, root)
    missing: tuple[str, ...] = () if directory else ("the directory of etcd's data is not known",)
    scrape: Scrape | None = None
    try:
        scrape = await etcd_metrics(found.options)
    except AgentError as error:
        missing += (f"etcd's metrics: {error.message}",)
    # The processes are found at each call, because etcd may be restarted during a staging.
    return Protected(directory, scrape, lambda: _members(root), missing)


def _members(root: Path) -> Sequence[int]:
    """Return the processes of the member, without those of ordinary users.

    They get the real-time class of I/O, which starves all other users of the disk.
    """
    from nodeagent.host.etcd.processes import processes

    return [process.pid for process in processes(root) if process.is_of_the_system]


async def etcd_metrics(options: Options) -> Scrape:
    """Return a function that fetches the metrics from the first address that replies, with the certificates of etcd.

    ``Retryable`` (``NoMetrics``) if none replies, ``Unreachable`` (``EtcdCredentials``) if a certificate is unreadable.
    """
    from nodeagent.host.etcd.client import client_tls
    from nodeagent.host.etcd.options import metrics_urls

    urls = metrics_urls(options)
    tls = None
    if any(url.startswith("https:") for url in urls):
        tls = await asyncio.to_thread(client_tls, options)
    last: Retryable | None = None
    # Which address has the metrics depends on two options and the version, so each one is tried.
    for url in urls:
        try:
            await _page(url, tls)
        except Retryable as error:
            # The first address is the one of the options, so its error explains more than those of the guesses.
            last = last or error
        else:
            return lambda url=url: _page(url, tls)  # type: ignore[misc]
    raise last or Retryable("no address is known", reason=Reason.NO_METRICS)


async def _page(url: str, tls: ssl.SSLContext | None) -> str:
    try:
        answer = await request("GET", url, tls=tls, timeout=TIMEOUT)
    except HttpFault as error:
        raise Retryable(f"{url}: {error}", reason=Reason.NO_METRICS) from error
    if answer.status != 200:
        raise Retryable(f"{url}: status {answer.status}", reason=Reason.NO_METRICS)
    return answer.body.decode(errors="replace")


def _data_of(found: Found, root: Path) -> Path | None:
    """Return the data directory. Its option may not be readable, so the usual places are tried as well."""
    from nodeagent.host.etcd.detect import DATA

    option = found.options.get("data-dir")
    for path in (*([Path(option)] if option else []), *(root / place for place in DATA)):
        with suppress(OSError):
            if path.is_dir():
                return path
    return None
