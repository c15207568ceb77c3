# SPDX-License-Identifier: Apache-2.0
"""What is not the same in 2022, 2024 and 2026. One sandbox for each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from integration.standins.rpmostreed.conftest import SandboxMaker
from integration.standins.rpmostreed.sandbox.sandbox import OS, Sandbox, SandboxError
from integration.standins.rpmostreed.sandbox.template import CHUNKS, IMAGE

YEARS = (2022, 2024, 2026)
PATH = "/run/rpm-ostree-transaction.sock"
LEGACY_LOCK = "/run/ostree/staged-deployment-locked"
LOCKED = "{'lock-finalization': <true>}"
REFERENCE = f"ostree-unverified-registry:{IMAGE}"
PREFIXES = {
    2022: "Failed to invoke skopeo proxy method OpenImage: remote error: ",
    2024: "Creating importer: Failed to invoke skopeo proxy method OpenImage: remote error: ",
    2026: "Preparing import: Fetching manifest: failed to invoke method OpenImage: ",
}


@pytest.fixture(params=YEARS)
def year(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def sandbox(make_sandbox: SandboxMaker, year: int) -> Iterator[Sandbox]:
    yield make_sandbox(like=year)


def test_socket_and_title(sandbox: Sandbox, year: int) -> None:
    client = sandbox.client()
    first = client.result(OS, "OS.Upgrade", "(@a{sv} {},)")
    busy = client.call(OS, "OS.Cleanup", "(['base'],)")["message"]
    assert ("(null)" if year == 2022 else "new-deployment") in busy
    peer = client.peer(first)
    title = "" if year == 2022 else "new-deployment"
    assert peer.properties() == {"Title": title, "InitiatingClientDescription": f"caller {client.name}"}
    peer.start()
    peer.finished()
    assert peer.properties()["Title"] == "upgrade"
    peer.close()
    client.deployments()  # after this the transaction is gone
    # Whether the file is still there or not: there is no listener, and its existence proves nothing.
    with pytest.raises(SandboxError, match="No such file" if year == 2026 else "refused"):
        client.peer(first)
    second = client.result(OS, "OS.Cleanup", "(['base'],)")
    if year == 2022:
        assert first != second
        assert first.startswith("unix:abstract=/tmp/dbus-")
    else:
        assert first == second == f"unix:path={PATH}"
        assert sandbox.run("stat", "-c", "%F %a", PATH).split() == ["socket", "666"]


def test_words_of_a_pull_and_the_lock(sandbox: Sandbox, year: int) -> None:
    client = sandbox.client()
    missing = client.transact("Rebase", f"(@a{{sv}} {{}}, '{REFERENCE}:nope', @as [])")
    assert missing.finished() == (False, f"{PREFIXES[year]}reading manifest nope in {IMAGE}: manifest unknown")
    pulled = client.transact("Rebase", f"({LOCKED}, '{REFERENCE}:2', @as [])")
    tasks, texts = pulled.texts("TaskBegin"), pulled.texts()
    if year == 2022:
        assert tasks == ["Staging deployment"]
        assert any(text.startswith("Fetched ostree chunk sha256:") for text in texts)
        assert any(text.startswith(f"ostree chunk layers stored: 0 needed: {CHUNKS + 1} (") for text in texts)
    elif year == 2024:
        assert tasks[0].startswith("Fetching ostree chunk sha256:")
    else:
        assert tasks[0].startswith(f"[1/{CHUNKS + 1}] Fetching ostree chunk ")
    # The lock: a file, and shown; then a key of the staged state, and no longer shown.
    staged = client.deployments()[0]
    assert sandbox.exists(LEGACY_LOCK) is (year < 2026)
    assert staged.get("finalization-locked") is (True if year < 2026 else None)
    sandbox.run("ostree", "admin", "finalize-staged")
    assert client.deployments()[0]["staged"] is True, "locked, wherever the lock is"
    # Locked again over a staged one: libostree takes the file away with the old one. Hosts had this.
    client.transact("KernelArgs", f"('', ['a=b'], @as [], @as [], {LOCKED})")
    login = sandbox.client()
    answers = {"ListInhibitors": "(@a(ssssuu) [],)"}
    sandbox.ask("own", wire=login.wire, name="org.freedesktop.login1", answers=answers)
    finalized = client.transact("FinalizeDeployment", "({'allow-missing-checksum': <true>},)").finished()
    assert finalized == ((True, "") if year == 2026 else (False, "Staged deployment already unlocked"))
