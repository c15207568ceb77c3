# SPDX-License-Identifier: Apache-2.0
"""An update of the OS on a really booted ostree system: `make demo-vm`, or `python -m integration.demo_vm`.

A virtual machine with its own kernel and disk is made on the spot, without KVM if there is none, which is why this is
not part of `make demo`. Shows the commands and their output, and checks what it shows, as that one does.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence

from integration.demo import UPDATE_TIMEOUT, Failed, Story, package_of, save_report
from integration.hosts import nodeagent_client as agent
from integration.hosts.errors import HostRingError, Unavailable
from integration.hosts.ostree import updates
from integration.hosts.vm import guest, image, live, nodes, registry_disk, virtual_machine, vm_requirements
from integration.hosts.vm.registry_disk import RegistryDisk
from integration.hosts.vm.virtual_machine import Vm
from integration.trees import parts
from integration.trees.base import Flavour
from integration.trees.ostree_repo import OstreeRepo
from integration.trees.tree import A, B, Tree

ARGUMENT = "nodeagent.demo=1"
DESIRED = "/root/b.yaml"
CURRENT = "/root/a.yaml"


def main() -> int:
    story = Story()
    try:
        run(story)
    except Unavailable as error:
        print(f"demo-vm: cannot run here: {error}", file=sys.stderr)
        return 2
    except (Failed, HostRingError) as error:
        print(f"demo-vm: FAILED after {story.seconds:.0f} s: {error}", file=sys.stderr)
        return 1
    return 0


def run(story: Story) -> None:
    story.say("nodeagent updates the OS of an image-based host. This shows it on a machine that really boots.")
    with contextlib.ExitStack() as stack:
        node, shelf = stack.enter_context(prepared(story))
        configs(node, shelf)
        plan(node, story)
        # Without etcd on this host, the fence protects the directory of nodeagent's own store.
        nodes.settings(node, {"fence": {"enabled": "always"}})
        update(node, story)
        history(node, story)
        save_report(story, "demo-vm", lambda argv: node.run(argv, timeout=UPDATE_TIMEOUT).stdout)
    story.say(
        f"\ndemo-vm: done in {story.seconds:.0f} s: a new OS, a kernel argument and a file with one reboot, verified"
    )


@contextlib.contextmanager
def prepared(story: Story) -> Iterator[tuple[Vm, RegistryDisk]]:
    """A machine that was installed from the image of A, nodeagent at rest on it, and a registry that has A and B."""
    story.chapter("A machine to try it on")
    vm_requirements.ensure(story.say, "package", "interpreter")
    tarball = package_of(story)
    virtual_machine.sweep()
    with contextlib.ExitStack() as stack:
        ostree_repo = OstreeRepo(Flavour.MACHINE, story.say)
        stack.callback(ostree_repo.close)
        installed = (guest.part(), parts.package(tarball), parts.stand_in({"REGISTRY": registry_disk.IN_GUEST}))

        def tree(plain: Tree) -> Tree:
            return plain.having(*installed)

        shelf = registry_disk.make(ostree_repo, [tree(A), tree(B)])
        stack.callback(shelf.disk.close)
        disk = image.system(ostree_repo, registry_disk.pulled(ostree_repo, tree(A)), story.say, filesystem="xfs")
        stack.callback(disk.close)
        (kernel,) = (kernel for path in ostree_repo.image.paths for kernel in path.glob("usr/lib/modules/*/vmlinuz"))
        settled = (nodes.key(), lambda vm: nodes.settle(vm, shelf.of(A)))
        frozen = live.frozen(
            disk, story.say, media=shelf.disk, accel=vm_requirements.accelerator(kernel), prepare=settled
        )
        stack.callback(frozen.close)
        vm = stack.enter_context(frozen.vm())
        vm.boot()
        story.say(f"   it runs {A.version}, kernel {vm.run(['uname', '-r']).stdout.strip()}, XFS; nodeagent is at rest")
        yield vm, shelf


def show(node: Vm, story: Story, *argv: str) -> None:
    story.command(argv)
    done = node.run(argv, check=False, timeout=UPDATE_TIMEOUT)
    story.output(done.stdout + done.stderr)
    if done.returncode != 0:
        raise Failed(f"{' '.join(argv)}: exit status {done.returncode}")


def configs(node: Vm, shelf: RegistryDisk) -> None:
    node.write(CURRENT, updates.config("a", shelf.of(A)), mode=0o600)
    node.write(DESIRED, updates.config("b", shelf.of(B), kernelArguments=[ARGUMENT]), mode=0o600)


def plan(node: Vm, story: Story) -> None:
    story.chapter(f"A change: {B.version}, a kernel argument and a file, all in one config")
    show(node, story, "nodeagent", "plan", "--from", CURRENT, "--to", DESIRED, "--policy", agent.POLICY)


def update(node: Vm, story: Story) -> None:
    story.chapter("The new OS is staged while everything runs; then one reboot")
    first, started = node.boot_id, time.monotonic()
    with node.rebooting(timeout=nodes.WAIT):
        show(node, story, "nodeagent", "apply", DESIRED)
        for line in steps(node):
            story.say(f"   {line}")
        staged = time.monotonic() - started
    story.say(f"   staged after {staged:.0f} s; the machine rebooted: boot {first[:8]} became boot {node.boot_id[:8]}")
    agent.wait_done(node, "b", nodes.WAIT)
    show(node, story, "nodeagent", "status")
    status = agent.status(node)
    story.expect(
        f"{B.version} is booted, {A.version} is there to go back to",
        updates.shown(status)
        == [
            f"{B.version} booted",
            A.version,
        ],
        updates.shown(status),
    )
    story.expect("the kernel was given the argument", ARGUMENT in node.read_text("/proc/cmdline").split())
    story.expect("the file is there", node.read_text(updates.MINE) == "mine of b\n")
    story.expect("there was one reboot", node.reboots == 1, node.reboots)


def steps(node: Vm) -> Iterator[str]:
    """Yield the steps of the status, each once, until the OS is staged."""
    last = ""
    while True:
        now = agent.status(node)
        step = now["step"]
        text = f"{now['phase']}: {step['name']}" if step else now["phase"]
        if text != last:
            last = text
            yield text
        if now["phase"] not in ("Idle", "Staging"):
            return
        time.sleep(0.5)


def history(node: Vm, story: Story) -> None:
    story.chapter("What happened here")
    show(node, story, "nodeagent", "history")
    found: Sequence[tuple[str, str]] = agent.outcomes(node)
    story.expect("the update is done and in the history", found == [("a", "done"), ("b", "done")], found)


if __name__ == "__main__":
    sys.exit(main())
