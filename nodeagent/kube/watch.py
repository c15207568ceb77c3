# SPDX-License-Identifier: Apache-2.0
"""Watch one object of a cluster by its name: its changes, without a request for each.

Of the object only the metadata are requested, because status writes are most of the changes of a Node. A server that
cannot reduce it sends all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, Required, TypedDict
from urllib.parse import urlencode

from nodeagent.core.config.text import plain_json
from nodeagent.core.coordination.kube_objects import KubeObject, Name
from nodeagent.kube.client import JSON, KubeClient
from nodeagent.kube.decode import decoded, status_of
from nodeagent.kube.errors import NoAnswer, ServerFault, from_answer

ACCEPT: Final = f"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{JSON}"
# The position from which a watch begins with the object as the cache of the server has it, which may be older than what
# was read before.
ANY: Final = "0"
# Seconds without an event after which a connection counts as lost: an API server sends a bookmark each minute.
SILENT: Final = 150.0
# Seconds that a server may take to end the watch at the requested time.
MARGIN: Final = 30.0
# Bytes; etcd stores objects of a million and a half.
MAX_EVENT: Final = 4 * 1024 * 1024


class Silent(NoAnswer):
    """The connection is open, and nothing has arrived for some time."""


@dataclass(frozen=True, slots=True)
class WatchedChange:
    """``item`` is None for a bookmark, which only moves the ``position``."""

    position: str
    item: KubeObject | None
    deleted: bool = False


class _Event(TypedDict):
    type: str
    object: dict[str, Any]


class _Position(TypedDict):
    resourceVersion: Required[Name]


class _Bookmark(TypedDict):
    metadata: _Position


async def changes(
    client: KubeClient, path: str, name: str, *, since: str, seconds: int, silent: float = SILENT
) -> AsyncGenerator[WatchedChange]:
    """Yield the changes after the position ``since``, until the server ends the watch after ``seconds`` or earlier.

    Raises ``Gone`` if the position is too old, ``Silent``, ``ServerFault`` for what is no event, and what a read
    raises.
    """
    what = f"WATCH {path}/{name}"
    query = {
        "watch": "true",
        "fieldSelector": f"metadata.name={name}",
        "resourceVersion": since,
        "allowWatchBookmarks": "true",
        "timeoutSeconds": str(seconds),
    }
    text = b""
    async with aclosing(client.parts(f"{path}?{urlencode(query)}", ACCEPT, seconds + MARGIN)) as parts:
        while True:
            try:
                async with asyncio.timeout(silent):
                    part = await anext(parts, None)
            except TimeoutError:
                raise Silent(f"{what}: nothing for {silent:g} s") from None
            # The rest of an event that was cut off arrives again with the next watch.
            if part is None:
                return
            *lines, text = (text + part).split(b"\n")
            if len(text) > MAX_EVENT:
                raise ServerFault(f"{what}: an event is larger than {MAX_EVENT} bytes")
            for line in lines:
                if line.strip():
                    yield _change(line, name, what)


def _change(line: bytes, name: str, what: str) -> WatchedChange:
    event = decoded(_Event, plain_json.object_of(line), what)
    kind, item = event["type"], event["object"]
    if kind == "BOOKMARK":
        return WatchedChange(decoded(_Bookmark, item, what)["metadata"]["resourceVersion"], None)
    if kind == "ERROR":
        code = item.get("code")
        raise from_answer(code if isinstance(code, int) else 500, status_of(item), what)
    if kind not in ("ADDED", "MODIFIED", "DELETED"):
        raise ServerFault(f"{what}: the answer is not an event of a watch")
    meta = decoded(KubeObject, item, what)["metadata"]
    if meta["name"] != name:
        raise ServerFault(f"{what}: the event is of another object")
    return WatchedChange(meta["resourceVersion"], {"metadata": meta}, deleted=kind == "DELETED")
