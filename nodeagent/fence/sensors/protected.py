"""Whom the fence protects, and how it is heard: etcd on this host, or whatever a caller puts in its place.

What looks for etcd is imported when somebody looks: most hosts never stage anything, and have none.
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

if TYPE_CHECKING:
    from nodeagent.host.etcd.detect import Found
    from nodeagent.host.etcd.options import Options

__all__ = ["MetricsSource", "Protected", "cgroup_of", "etcd_metrics", "find_etcd"]

TIMEOUT: Final = 3.0
"""Seconds for one page of metrics. It is not read from the disk: who does not answer for longer is in trouble."""
_CGROUPS: Final = Path("/sys/fs/cgroup")

Scrape = Callable[[], Awaitable[str]]


def _nobody() -> Sequence[int]:
    return ()


@dataclass(frozen=True, slots=True)
class Protected:
    """Each way to hear it may be missing. ``directory``: any on its file system, for our probe. ``scrape``: the text of
    its metrics, in etcd's names; raises ``AgentError``. ``pids``: its processes now, for pressure and priorities; it
    may block. ``missing``: what could not be found, in words."""

    directory: Path | None = None
    scrape: Scrape | None = None
    pids: Callable[[], Sequence[int]] = _nobody
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MetricsSource:
    """Set by a person instead of what is found on the host; "" leaves it to that. Paths are PEM files."""

    url: str = ""
    ca: str = ""
    certificate: str = ""
    key: str = ""


async def find_etcd(root: Path = Path("/")) -> Protected | None:
    """None if no member is on this host."""
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
    """Those that detection takes for the member and that no ordinary user has started: they get the real-time class of
    I/O, which starves everything else on the disk."""
    from nodeagent.host.etcd.processes import processes

    return [process.pid for process in processes(root) if process.is_of_the_system]


async def etcd_metrics(metrics: MetricsSource, options: Options) -> Scrape:
    """The first address that answers, for as long as it does. ``Retryable`` (``NoMetrics``) if none does now,
    ``Terminal`` (``EtcdCredentials``) if the certificates cannot be read."""
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
    raise last or Retryable("no address is known", reason="NoMetrics")


async def _page(url: str, tls: ssl.SSLContext | None) -> str:
    try:
        answer = await request("GET", url, tls=tls, timeout=TIMEOUT)
    except HttpFault as error:
        raise Retryable(f"{url}: {error}", reason="NoMetrics") from error
    if answer.status != 200:
        raise Retryable(f"{url}: status {answer.status}", reason="NoMetrics")
    return answer.body.decode(errors="replace")


def _tls(files: tuple[str, str, str]) -> ssl.SSLContext:
    try:
        return tls_context(*files)
    except ssl.SSLError as error:
        raise Terminal(f"certificates: {error.reason or error}", reason="EtcdCredentials") from error
    except OSError as error:
        which = error.filename or ", ".join(filter(None, files))
        raise Terminal(f"certificates: {error.strerror}: {which}", reason="EtcdCredentials") from error


def _data_of(found: Found, root: Path) -> Path | None:
    """Through /proc/PID/root it can be seen only by who may trace the process, so the usual places come after it."""
    from nodeagent.host.etcd.detect import DATA

    said = found.options.get("data-dir")
    for path in (*([Path(said)] if said else []), *(root / place for place in DATA)):
        with suppress(OSError):
            if path.is_dir():
                return path
    return None


def cgroup_of(pid: int, cgroups: Path = _CGROUPS, proc: Path = Path("/proc")) -> Path | None:
    """Of cgroup v2; None if it has none, or has ended."""
    with suppress(OSError):
        for line in (proc / str(pid) / "cgroup").read_text().splitlines():
            if line.startswith("0::/"):
                return cgroups / line.removeprefix("0::/")
    return None
