# SPDX-License-Identifier: Apache-2.0
"""docs/usage/encrypt-credentials.md on a machine with a TPM: a kubeconfig that only this TPM can decrypt.

systemd, the driver of the kernel and the files of the page are real, and swtpm is a TPM. The API server is a program in
the guest that records which token it was given.
"""

from __future__ import annotations

import base64
import hashlib
import json
import mmap
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.conftest import required
from integration.hosts.node.test_encrypted_kubeconfig import CREDENTIAL, PAGE, PLAIN, snippets
from integration.hosts.ostree import updates
from integration.hosts.vm import nodes, token_server, tpm
from integration.hosts.vm.conftest import VmMaker
from integration.hosts.vm.tpm import TpmVm
from integration.hosts.vm.virtual_machine import Vm
from integration.trees.tree import A
from nodeagent.reasons import Reason

TREE = replace(A, packages=tpm.PACKAGES)
NODE, PORT = "sealed", 7443
SERVER, RECORD = "/var/lib/api/token_server.py", "/run/tokens"
API = f"""\
[Service]
ExecStart=/usr/bin/python3 {SERVER} {PORT} {RECORD} {NODE}
[Install]
WantedBy=multi-user.target
"""
DECRYPTS = "nodeagent-kubeconfig.service"
ONE = "/etc/one"
DROP_IN = f"/etc/systemd/system/{agent.UNIT}.d/60-own.conf"
# systemd extends registers only on hosts that boot with its stub, unless it is forced.
EXTEND = ("env", "SYSTEMD_FORCE_MEASURE=1", "/usr/lib/systemd/systemd-pcrextend", "--bank=sha256", "--pcr=7", "changed")
# Bound to the TPM, and to no register.
FREE = "/var/lib/free.cred"
EXIT_CREDENTIALS = "243"
SLOW = 120.0  # seconds for a few programs, without KVM
MEMORY = "/run/kubeconfig"


def kubeconfig(token: str) -> str:
    cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{PORT}"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    users = [{"name": "u", "user": {"token": token}}]
    about = {"apiVersion": "v1", "kind": "Config", "current-context": "c"}
    return json.dumps({**about, "clusters": [cluster], "contexts": [context], "users": users})


def commands(*options: str) -> str:
    """Return the commands of the page that encrypt a kubeconfig, with these options."""
    found = re.findall(r"(?:^    .*\n)*^    systemd-creds encrypt .*\n(?:^    .*\n)*", PAGE.read_text(), re.MULTILINE)
    (block,) = map(str, found)
    return block.replace("systemd-creds encrypt", f"systemd-creds encrypt {' '.join(options)}")


def encrypt(vm: Vm, token: str, *options: str) -> None:
    """Encrypt a kubeconfig as the page has it. The plain text is in memory only."""
    vm.write(MEMORY, kubeconfig(token), mode=0o600)
    vm.run(["sh", "-ec", commands("--with-key=tpm2", *options)], timeout=SLOW)
    assert not vm.exists(MEMORY)


def wait_used(vm: Vm, token: str) -> None:
    """Wait until the agent has sent a request with this token, in this boot."""
    wanted = hashlib.sha256(token.encode()).hexdigest()
    vm.wait_for(lambda: wanted in vm.read_text(RECORD), "the agent uses the kubeconfig", nodes.WAIT, every=2)


def decrypted_free(vm: Vm) -> bool:
    argv = ["systemd-creds", "decrypt", "--name=free", FREE, "-"]
    return vm.run(argv, check=False, timeout=SLOW).stdout == "free"


def reported(vm: Vm) -> Sequence[str]:
    """Return what the agent logged in this boot because of the kubeconfig."""
    entries = vm.journal(agent.UNIT, boot=vm.boot_id, match={"NODEAGENT_REASON": Reason.KUBECONFIG_INVALID})
    return [entry["MESSAGE"] for entry in entries]


def decrypts(vm: Vm) -> bool:
    """Decrypt the file again, as a start of the host does, and return whether that succeeded."""
    return vm.run(["systemctl", "restart", DECRYPTS], check=False, timeout=SLOW).returncode == 0


def forms(secret: str) -> list[bytes]:
    """A text as it is, and as base64 has it at each of its three places in a longer one."""
    parts = [secret.encode()[skip:] for skip in range(3)]
    return [secret.encode(), *(base64.b64encode(part[: len(part) // 3 * 3]) for part in parts)]


def on_disk(disk: Path, texts: Sequence[bytes]) -> list[bytes]:
    """Return which of these texts the file of a disk has anywhere."""
    with disk.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return [text for text in texts if content.find(text) >= 0]


@pytest.mark.long
@pytest.mark.timeout(nodes.WAIT * 6)
def test_a_kubeconfig_that_only_this_tpm_decrypts(make_vm: VmMaker, say: Callable[[str], None]) -> None:
    required(lambda: tpm.ensure(say))
    vm = make_vm(TREE, cold=True, kind=TpmVm)
    assert isinstance(vm, TpmVm)
    first, second, third = (secrets.token_hex(32) for _ in range(3))
    vm.boot()
    # systemd looks for a firmware with EFI, which this machine has not; it is not needed for a credential.
    found = vm.run(["systemd-creds", "has-tpm2"], check=False, timeout=SLOW).stdout
    assert {"+driver", "+system", "+subsystem", "+libraries"} <= set(found.split())
    vm.write(SERVER, Path(token_server.__file__).read_text())
    vm.write("/etc/systemd/system/api.service", API)
    agent.settings(vm, {**nodes.SLOW, "node_name": NODE})
    vm.write(agent.POLICY, agent.policy(files={ONE: ["None"]}))
    for path, text in snippets().items():
        vm.write(path, text)
    encrypt(vm, first)
    vm.run(["systemctl", "daemon-reload"], timeout=SLOW)
    vm.run(["systemctl", "enable", "--now", "api.service"], timeout=SLOW)
    vm.run(["systemctl", "restart", agent.UNIT], timeout=nodes.UNIT_WAIT)
    agent.wait_daemon(vm, SLOW)
    wait_used(vm, first)
    assert reported(vm) == []

    # Rotated, without a restart.
    main = vm.unit(agent.UNIT, "MainPID")
    encrypt(vm, second)
    agent.apply(vm, agent.machine_config("rotated", files={ONE: "rotated"}))
    wait_used(vm, second)
    assert vm.unit(agent.UNIT, "MainPID") == main

    # Another state of Secure Boot, as after an update of the keys of the firmware: only until the next boot, here.
    sealed = ["systemd-creds", "encrypt", "--with-key=tpm2", "--tpm2-pcrs=", "--name=free", "-", FREE]
    vm.run(sealed, stdin="free", timeout=SLOW)
    assert decrypts(vm)
    vm.run(EXTEND, timeout=SLOW)
    assert not decrypts(vm)
    assert decrypted_free(vm)
    assert vm.exists(PLAIN)

    with vm.rebooting(nodes.WAIT):
        vm.run(["systemctl", "reboot"])
    agent.wait_daemon(vm, SLOW)
    wait_used(vm, second)
    assert reported(vm) == []

    # Another TPM.
    vm.run(["sync"])
    vm.power_off()
    vm.replace_tpm()
    vm.boot()
    agent.wait_daemon(vm, SLOW)
    assert vm.unit(DECRYPTS, "ExecMainStatus")["ExecMainStatus"] == EXIT_CREDENTIALS
    assert not vm.exists(PLAIN)
    assert not decrypted_free(vm)
    # The lease is in the cluster, so that the update waits.
    agent.apply(vm, agent.machine_config("waits", files={ONE: "waits"}))
    updates.wait_reason(vm, Reason.KUBECONFIG_INVALID)
    assert reported(vm)
    assert all(PLAIN in message for message in reported(vm))
    checks = json.loads(vm.run(["nodeagent", "selfcheck", "--json"], check=False, timeout=SLOW).stdout)["checks"]
    reach = next(each for each in checks if each["id"] == "reach.api-server")
    assert reach["result"] == "failed"
    assert PLAIN in reach["message"]

    # Encrypted again, on this TPM.
    main = vm.unit(agent.UNIT, "MainPID")
    encrypt(vm, third)
    wait_used(vm, third)
    updates.wait_status(vm, "it is over", lambda now: now["reason"] != Reason.KUBECONFIG_INVALID, nodes.WAIT)
    assert vm.unit(agent.UNIT, "MainPID") == main

    # A credential of the daemon itself keeps it from starting.
    vm.run(EXTEND, timeout=SLOW)
    vm.write(DROP_IN, f"[Service]\nLoadCredentialEncrypted=kubeconfig:{CREDENTIAL}\n")
    vm.run(["systemctl", "daemon-reload"], timeout=SLOW)
    assert vm.run(["systemctl", "restart", agent.UNIT], check=False, timeout=SLOW).returncode != 0
    vm.wait_for(
        lambda: vm.unit(agent.UNIT, "ExecMainStatus")["ExecMainStatus"] == EXIT_CREDENTIALS, "it does not start"
    )

    marker = secrets.token_hex(32)
    vm.write("/var/lib/marker", marker)
    credential = vm.read_text(CREDENTIAL).split()[0].encode()
    vm.run(["sync"])
    vm.power_off()
    assert on_disk(vm.disk, [text for token in (first, second, third) for text in forms(token)]) == []
    # The search finds what is there.
    assert on_disk(vm.disk, [credential, marker.encode()]) == [credential, marker.encode()]
