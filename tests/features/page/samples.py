# SPDX-License-Identifier: Apache-2.0
"""Updates as ``nodeagent/update/v1`` objects: an OS with one reboot under the fence, and restarts after a wait."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

HOSTILE = "\"><script>alert(1)</script><img src=x onerror='alert(1)'>&amp;\u202e"

EPOCH = 1_795_395_000.0


def stamp(at: float) -> str:
    return datetime.fromtimestamp(EPOCH + at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def span(name: str, start: float, end: float | None, boot: int = 0, up: float = 0.0, **more: str) -> dict[str, Any]:
    """``start`` and ``end`` are seconds since the beginning of the update, ``up`` is the start of the boot on that."""
    seconds = None if end is None else round(end - start, 3)
    texts = {"result": "", "reason": "", "message": "", "phase": ""} | more
    return {"name": name, "at": stamp(start), "boot": boot, "mono": round(start - up, 3), "seconds": seconds, **texts}


def boot(name: str, up: float, seen: float, last: float, **more: Any) -> dict[str, Any]:
    times = {"seen": seen - up, "last": last - up, "offset": EPOCH + up}
    return {"id": name, **times, "accepted": None, "clock_steps": [], **more}


def update(trail: dict[str, Any], plan: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    end = max((phase["mono"] + (phase["seconds"] or 0) for phase in trail.get("phases", [])), default=1.0)
    return {
        "schema": "nodeagent/update/v1",
        "update_id": "84af7045edd74549",
        "from_name": "worker-1",
        "to_name": "worker-2",
        "started": stamp(0),
        "finished": stamp(end),
        "outcome": "done",
        "disruption": "restart",
        "reboots": 0,
        "boots": more.get("reboots", 0),
        "reboot_avoided": False,
        "seconds": end,
        "reason": "",
        "message": "",
        "fallback": False,
        "to_digest": "",
        "successor": "",
        "etcd_disk": {},
        "plan": plan or {},
        "trail": trail,
        **more,
    }


def an_os(name: str = "b") -> dict[str, Any]:
    """98 s of staging under the fence, and 50 s for a reboot of which the host is down for 12 s."""
    up = 105.0
    samples = [[second, 6_500_000 - 20_000 * second, 20.0 + (180 if second == 40 else second)] for second in range(72)]
    trail = {
        "boots": [
            boot("e7ba540b12cc", -1000.0, 0.0, 108.0, accepted=1107.0),
            boot("22557402b6ff", up + 3, 120.0, 157.0, clock_steps=[[20.0, -31.0]]),
        ],
        "phases": [
            span("Staging", 0.0, 98.0, 0, -1000),
            span("Leasing", 98.0, 98.5, 0, -1000),
            span("Writing", 98.5, 98.7, 0, -1000),
            span("Acting", 98.7, 98.8, 0, -1000),
            span("Rebooting", 98.8, 108.0, 0, -1000, reason="Planned", message="rebooting into b"),
            span("Verifying", 120.0, 156.9, 1, up + 3),
            span("Releasing", 156.9, 157.0, 1, up + 3),
        ],
        "steps": [
            span("Fetching objects", 23.0, 34.0, 0, -1000, phase="Staging", result="done"),
            span("Staging deployment", 34.0, 98.0, 0, -1000, phase="Staging", result="done"),
        ],
        "waits": [
            span(
                "",
                99.0,
                107.0,
                0,
                -1000,
                phase="Rebooting",
                message="the reboot waits until 2026-11-23T01:52:33Z for apt",
            )
        ],
        "writes": 3,
        "fence": {
            "boot": 0,
            "mono": 1023.0,
            "seconds": 72.0,
            "throttled": 70.0,
            "exceedances": 4,
            "source": "etcd",
            "every": 1.0,
            "samples": samples,
        },
        "omitted": 0,
    }
    change = {
        "domain": "osimage",
        "key": "osImageURL",
        "change": "modified",
        "policy": "default",
        "actions": ["Reboot"],
    }
    plan = {"changes": [change], "more": 0, "actions": ["Reboot"], "drain": False}
    return update(trail, plan, from_name="a", to_name=name, disruption="reboot", reboots=1)


def hashes() -> dict[str, Any]:
    """The same, with the checksum of a deployment in what it waits for: digits are wider than most letters."""
    entry = an_os()
    checksum = "6289dad6d0c6b78e7cd92affb5c83522d230413c2b3fb071baec044dfb6e6832"
    entry["trail"]["waits"][0]["message"] = f"the boots of os-{checksum}.1 and of os-{checksum}.0 are not counted"
    return entry


def restarts(name: str = "worker-2") -> dict[str, Any]:
    """30 s of waiting for the lease, and 2.9 s of restarts."""
    unit = f"restart {name}.service"
    trail = {
        "boots": [boot("abcdef0123", -1000.0, 0.0, 44.1)],
        "phases": [
            span("Leasing", 0.0, 30.4, 0, -1000),
            span("Writing", 30.4, 30.6, 0, -1000),
            span("Acting", 30.6, 33.9, 0, -1000),
            span("Verifying", 33.9, 44.0, 0, -1000),
            span("Releasing", 44.0, 44.1, 0, -1000),
        ],
        "steps": [
            span("daemon-reload", 30.6, 30.9, 0, up=-1000.0, phase="Acting", result="done"),
            span("restart trust.service", 30.9, 31.4, 0, up=-1000.0, phase="Acting", result="done"),
            span(unit, 31.4, 33.8, 0, up=-1000.0, phase="Acting", result="done"),
        ],
        "waits": [
            span("", 0.4, 30.4, 0, -1000, phase="Leasing", reason="LeaseHeld", message=f"{name} holds the lease")
        ],
        "writes": 2,
        "fence": None,
        "omitted": 0,
    }
    return update(trail, to_name=name, reboot_avoided=True)


def hostile() -> dict[str, Any]:
    """An update in which every text from outside is markup."""
    found = an_os()
    found |= {"from_name": HOSTILE, "to_name": HOSTILE, "reason": HOSTILE, "message": HOSTILE, "outcome": HOSTILE}
    found |= {"update_id": HOSTILE, "started": HOSTILE, "finished": HOSTILE, "disruption": HOSTILE}
    for item in (*found["trail"]["phases"], *found["trail"]["steps"], *found["trail"]["waits"]):
        item |= {"name": HOSTILE, "message": HOSTILE, "reason": HOSTILE, "at": HOSTILE, "result": HOSTILE}
    found["trail"]["boots"][0]["id"] = HOSTILE
    change = dict.fromkeys(("domain", "key", "change", "policy"), HOSTILE) | {"actions": [HOSTILE]}
    found["plan"] = {"changes": [change], "more": 1, "actions": [HOSTILE], "drain": False}
    return found
