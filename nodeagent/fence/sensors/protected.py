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
from urllib.parse import urlsplit

from nodeagent.errors import Retryable, Terminal
from nodeagent.host.http import HttpFault, request, tls_context
from nodeagent.reasons import Reason

if TYPE_CHECKING:
    from nodeagent.host.etcd.detect import Found
    from nodeagent.host.etcd.options import Options

__all__ = ["MetricsSource", "Protected", "cgroup_of", "etcd_metrics", "find_etcd"]

TIMEOUT: Final = 3.0
"""Seconds for one page of metrics. etcd serves it from memory, so a longer wait means trouble."""
_CGROUPS: Final = Path("/sys/fs/cgroup")

Scrape = Callable[[], Awaitable[str]]


def _no_pids() -> Sequence[int]:
    return ()


@dataclass(frozen=True, slots=True)
class Protected:
    """Each source of the latency may be missing. ``directory``: any directory on its file system, for the probe.
    ``scrape``: returns its metrics as text, with the names of etcd; raises ``AgentError``. ``pids``: returns its
    processes, for pressure and priorities; it may block. ``missing``: messages about sources that were not found."""

    directory: Path | None = None
    scrape: Scrape | None = None
    pids: Callable[[], Sequence[int]] = _no_pids
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MetricsSource:
    """The address and PEM files of the metrics; "" for those in the options of etcd."""

    url: str = ""
    ca: str = ""
    certificate: str = ""
    key: str = ""


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
        scrape = await etcd_metrics(MetricsSource(), found.options)
    except (Retryable, Terminal) as error:
        missing += (f"etcd's metrics: {error.message}",)
    return Protected(directory, scrape, lambda: _members(root), missing)


def _members(root: Path) -> Sequence[int]:
    """Return the processes of the member, without those of ordinary users.

    They get the real-time class of I/O, which starves all other users of the disk.
    """
    from nodeagent.host.etcd.processes import processes

    return [process.pid for process in processes(root) if process.is_of_the_system]


async def etcd_metrics(metrics: MetricsSource, options: Options) -> Scrape:
    """Return a function that fetches the metrics from the first address that replies, with certificates.

    ``Retryable`` (``NoMetrics``) if none replies, ``Terminal`` (``EtcdCredentials``) if one is unreadable.
    """
    from nodeagent.host.etcd.options import metrics_urls

    urls = [metrics.url] if metrics.url else metrics_urls(options)
    tls = None
    if any(urlsplit(url).scheme == "https" for url in urls):
        files = (
            metrics.ca or options.get("trusted-ca-file"),
            metrics.certificate or options.get("cert-file"),
            metrics.key or options.get("key-file"),
        )
        tls = await asyncio.to_thread(_tls, files)
    last: Retryable | None = None
    for url in urls:
        try:
            await _page(url, tls)
        except Retryable as error:
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


def _tls(files: tuple[str, str, str]) -> ssl.SSLContext:
    try:
        return tls_context(*files)
    except ssl.SSLError as error:
        raise Terminal(f"certificates: {error.reason or error}", reason=Reason.ETCD_CREDENTIALS) from error
    except OSError as error:
        which = error.filename or ", ".join(filter(None, files))
        raise Terminal(f"certificates: {error.strerror}: {which}", reason=Reason.ETCD_CREDENTIALS) from error


def _data_of(found: Found, root: Path) -> Path | None:
    """Return the data directory. Its option may not be readable, so the usual places are tried as well."""
    from nodeagent.host.etcd.detect import DATA

    said = found.options.get("data-dir")
    for path in (*([Path(said)] if said else []), *(root / place for place in DATA)):
        with suppress(OSError):
            if path.is_dir():
                return path
    return None


def cgroup_of(pid: int, cgroups: Path = _CGROUPS, proc: Path = Path("/proc")) -> Path | None:
    """Return the cgroup (v2) of a process; None if it has none or has ended."""
    with suppress(OSError):
        for line in (proc / str(pid) / "cgroup").read_text().splitlines():
            if line.startswith("0::/"):
                return cgroups / line.removeprefix("0::/")
    return None
