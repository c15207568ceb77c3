# SPDX-License-Identifier: Apache-2.0
"""The daemon on the bus: objects, clients, idle exit, and who may do what."""

from __future__ import annotations

from integration.standins.rpmostreed.conftest import SandboxMaker
from integration.standins.rpmostreed.sandbox.sandbox import NAME, OS, SYSROOT, Sandbox
from integration.standins.rpmostreed.sandbox.template import BRANCH

NO_REPLY = "org.freedesktop.DBus.Error.NoReply"
CONFIG = "/etc/rpm-ostreed.conf"
BASE = "/org/projectatomic/rpmostree1"


def test_objects_and_properties(sandbox: Sandbox) -> None:
    client = sandbox.client()
    objects = client.result(BASE, "org.freedesktop.DBus.ObjectManager.GetManagedObjects")
    assert sorted(objects) == [SYSROOT, OS]
    assert sorted(objects[OS]) == [f"{NAME}.OS", f"{NAME}.OSExperimental"]
    assert sorted(objects[SYSROOT][f"{NAME}.Sysroot"]) == [
        *("ActiveTransaction", "ActiveTransactionPath", "AutomaticUpdatePolicy", "Booted", "Deployments", "Path"),
    ]
    assert client.property(SYSROOT, "Sysroot", "Booted") == OS
    assert client.property(SYSROOT, "Sysroot", "Path") == "/"
    assert client.result(SYSROOT, "Sysroot.GetOS", "('tiny',)") == OS
    unknown = client.call(SYSROOT, "Sysroot.GetOS", "('nope',)")
    assert unknown["error"].endswith(".Code1")
    assert unknown["message"] == 'OS name "nope" not found'
    booted = client.property(OS, "OS", "BootedDeployment")
    assert client.property(OS, "OS", "DefaultDeployment") == booted
    assert client.property(OS, "OS", "RollbackDeployment") == {}
    assert client.property(OS, "OS", "CachedUpdate") == {}
    assert booted["id"] == f"tiny-{sandbox.template.commits['1']}.0"
    assert (booted["origin"], booted["gpg-enabled"], booted["timestamp"]) == (f"test:{BRANCH}", False, 1_700_086_400)
    assert "pending-base-checksum" not in booted


def test_it_leaves_when_idle_and_forgets_its_clients(make_sandbox: SandboxMaker) -> None:
    sandbox = make_sandbox(idle_spread=0)
    sandbox.write(CONFIG, "[Daemon]\nIdleExitTimeout=1\n")
    client = sandbox.client()
    client.result(SYSROOT, "Sysroot.RegisterClient", "({'id': <'test'>},)")

    def owner() -> str:
        return str(client.bus("GetNameOwner", f"('{NAME}',)").get("value", [""])[0])

    first = owner()
    serial = client.send("org.freedesktop.DBus", "/", "org.freedesktop.DBus.Peer", "Ping")
    client.wait(serial)
    sandbox.run("sleep", "2.2")
    assert owner() == first, "a registered client keeps it"
    client.result(SYSROOT, "Sysroot.UnregisterClient", "(@a{sv} {},)")
    sandbox.wait_until(lambda: owner() == "")
    # A call starts another process, which has no clients.
    client.result(SYSROOT, "Sysroot.Reload")
    assert owner() not in ("", first)
    peer = client.transact("Cleanup", "(['base'],)", leave=False)
    assert peer.properties()["InitiatingClientDescription"] == f"caller {client.name}"


def test_a_client_that_leaves_the_bus_is_no_client(make_sandbox: SandboxMaker) -> None:
    sandbox = make_sandbox(idle_spread=0)
    sandbox.write(CONFIG, "[Daemon]\nIdleExitTimeout=1\n")
    client, other = sandbox.client(), sandbox.client()
    client.result(SYSROOT, "Sysroot.RegisterClient", "(@a{sv} {},)")
    client.close()
    sandbox.wait_until(lambda: "value" not in other.bus("GetNameOwner", f"('{NAME}',)"))


def test_a_call_into_its_leaving_gets_no_reply(make_sandbox: SandboxMaker) -> None:
    sandbox = make_sandbox(idle_spread=0)
    sandbox.write(CONFIG, "[Daemon]\nIdleExitTimeout=1\n")
    sandbox.inject_faults({"at": "exit", "do": "sleep", "seconds": 3})
    client = sandbox.client()
    client.result(SYSROOT, "org.freedesktop.DBus.Peer.Ping")
    # GLib fires timers of whole seconds together, up to three quarters of one later.
    sandbox.wait_until(lambda: "Exiting due to idle" in sandbox.daemon_log())
    assert client.call(SYSROOT, "Sysroot.Reload")["error"] == NO_REPLY
    assert client.call(SYSROOT, "Sysroot.Reload") == {"value": [], "text": "()"}, "which is why one tries again"


def test_the_first_answer_may_take_long(sandbox: Sandbox) -> None:
    sandbox.inject_faults({"at": "boot", "do": "sleep", "seconds": 1})
    client = sandbox.client()
    assert client.call(SYSROOT, "Sysroot.Reload", timeout=0.8) == {"timeout": True}
    assert client.result(SYSROOT, "Sysroot.Reload") == []


def test_configuration_is_read_again(sandbox: Sandbox) -> None:
    client = sandbox.client()
    assert client.property(SYSROOT, "Sysroot", "AutomaticUpdatePolicy") == "none"
    sandbox.write(CONFIG, "[Daemon]\nAutomaticUpdatePolicy=Stage\nLockLayering=true\n")
    client.result(SYSROOT, "Sysroot.Reload")
    assert client.property(SYSROOT, "Sysroot", "AutomaticUpdatePolicy") == "none"
    client.result(SYSROOT, "Sysroot.ReloadConfig")
    assert client.property(SYSROOT, "Sysroot", "AutomaticUpdatePolicy") == "stage"
    peer = client.transact("PkgChange", "(@a{sv} {}, ['vim'], @as [])")
    assert peer.finished() == (False, "Cannot operate; `LockLayering=true` in configuration.")


def call_as(sandbox: Sandbox, path: str, member: str, body: str) -> dict[str, object]:
    interface, _, method = member.rpartition(".")
    call = {"destination": NAME, "path": path, "interface": f"{NAME}.{interface}", "method": method, "body": body}
    return dict(sandbox.ask("as", uid=1000, **call))


def test_others_than_root_need_polkit(sandbox: Sandbox) -> None:
    client = sandbox.client()
    client.deployments()
    # Properties, Reload and GetOS are open to all users.
    assert call_as(sandbox, SYSROOT, "Sysroot.GetOS", "('tiny',)")["value"] == [OS]
    no_polkit = call_as(sandbox, OS, "OS.Cleanup", "(['base'],)")
    assert str(no_polkit["message"]).startswith("Authorization error: ")
    polkit = sandbox.client()
    allow, deny = "((true, false, @a{ss} {}),)", "((false, false, @a{ss} {}),)"

    def polkit_says(answer: str) -> None:
        name, answers = "org.freedesktop.PolicyKit1", {"CheckAuthorization": answer}
        sandbox.ask("own", wire=polkit.wire, name=name, answers=answers)

    polkit_says(deny)
    assert call_as(sandbox, OS, "OS.Cleanup", "(['base'],)") == {
        "error": "org.freedesktop.DBus.Error.AccessDenied",
        "message": "rpmostreed OS operation Cleanup not allowed for user",
    }
    assert call_as(sandbox, SYSROOT, "Sysroot.RegisterClient", "(@a{sv} {},)")["message"] == (
        "rpmostreed Sysroot operation RegisterClient not allowed for user"
    )
    assert "value" in call_as(sandbox, OS, "OS.GetDeploymentBootConfig", "('', false)")
    polkit_says(allow)
    body = "({'set-refspec': <'x:y'>, 'install-packages': <['a']>}, {'no-initramfs': <true>})"
    assert "value" in call_as(sandbox, OS, "OS.UpdateDeployment", body)
    asked = [(arguments[1], arguments[3]) for _, arguments in sandbox.ask("calls", wire=polkit.wire)]
    assert asked == [
        (f"{NAME}.cleanup", 1),
        (f"{NAME}.client-management", 0),
        (f"{NAME}.bootconfig", 1),
        (f"{NAME}.rebase", 1),
        (f"{NAME}.install-uninstall-packages", 1),
    ]


def test_others_may_not_use_the_experimental_interface(sandbox: Sandbox) -> None:
    assert sandbox.client().result(OS, "OSExperimental.Moo", "(true,)")
    refused = call_as(sandbox, OS, "OSExperimental.Moo", "(true,)")
    assert refused["error"] == "org.freedesktop.DBus.Error.AccessDenied"


def test_what_it_cannot_do_it_says(sandbox: Sandbox) -> None:
    client = sandbox.client()
    assert "no RPM" in client.call(OS, "OS.SetInitramfsState", "(true, @as [], @a{sv} {})")["message"]
    assert client.result(OS, "OS.ListRepos") == []
    assert client.call(OS, "OS.Search", "(@as [],)")["message"] == "Must specify a term for search"
