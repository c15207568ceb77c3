# SPDX-License-Identifier: Apache-2.0
"""A shell on a test host with nodeagent, for the tutorial: ``make demo-shell``.

The host is a container that systemd boots, made as for ``make demo``. It is removed when the shell ends. A reboot of
the host ends the shell as well; a new one opens when the host is up again.
"""

from __future__ import annotations

import os
import subprocess
import sys

from integration.demo import CONFIGS, POLICY, SETTINGS, Story, machine_config, prepare
from integration.hosts.container.configs import ANCHOR, CERTIFICATE, MIRRORED, REGISTRIES
from integration.hosts.container.container_host import BOOT_TIMEOUT, Host
from integration.hosts.errors import CommandFailed, HostGone, HostRingError, Unavailable
from integration.hosts.testhost import GUEST_ENV

MODE = "/etc/flaky/mode"
PROMPT = "node# "


def write_configs(host: Host) -> None:
    """Four versions of a config, each with one change, and a policy that the tutorial installs."""
    first = {REGISTRIES: host.read_text(REGISTRIES), MODE: host.read_text(MODE)}
    mirrored = first | {REGISTRIES: MIRRORED, ANCHOR: CERTIFICATE}
    versions = (first, mirrored, mirrored | {MODE: "ok later\n"}, mirrored | {MODE: "fail\n"})
    for number, files in enumerate(versions, 1):
        name = f"worker-{number}"
        host.write(f"{CONFIGS}/{name}.yaml", machine_config(name, files), mode=0o600)
    host.write(f"{CONFIGS}/policy.yaml", POLICY)


def boot(host: Host) -> None:
    host.write("/etc/nodeagent/config.d/50-demo.yaml", SETTINGS)
    host.boot()
    host.wait_for(lambda: host.is_active("nodeagent.service"), "nodeagent is up")
    write_configs(host)


def shell_command(host: Host, terminal: str) -> list[str]:
    """Return the command of a shell on the host, for a terminal of this type.

    It is a unit there, because a process that was entered would delay a shutdown.
    """
    less = ["setpriv", "--bounding-set=-sys_time,-sys_module,-sys_rawio", "--"]
    enter = [*less, "nsenter", f"--target={host.container.leader}", "-m", "-p", "-u", "-i", "-n", "-C", "--"]
    unit = ["systemd-run", "--quiet", "--collect", "--pty", "--property=SendSIGHUP=yes", f"--setenv=PS1={PROMPT}"]
    unit += [f"--setenv=TERM={terminal}", f"--working-directory={CONFIGS}"]
    return [*enter, *unit, "bash", "--norc", "-i"]


def shell(host: Host) -> None:
    subprocess.run(shell_command(host, os.environ.get("TERM", "dumb")), env=GUEST_ENV)


def goes_down(host: Host) -> bool:
    try:
        return host.run(["systemctl", "is-system-running"], check=False).stdout.strip() == "stopping"
    except (CommandFailed, HostGone):
        return True


def run(story: Story) -> None:
    image = prepare(story)
    try:
        with Host(image) as host:
            boot(host)
            story.say(f"\n{CONFIGS} has four configs and a policy. Ctrl-D ends the shell and removes the host.\n")
            shell(host)
            while goes_down(host):
                story.say("\nThe host reboots. A new shell opens when it is up.\n")
                host.container.wait_ready(len(host.boots) + 1, BOOT_TIMEOUT)
                shell(host)
    finally:
        image.close()


def main() -> int:
    try:
        run(Story())
    except Unavailable as error:
        print(f"demo-shell: cannot run here: {error}", file=sys.stderr)
        return 2
    except HostRingError as error:
        print(f"demo-shell: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
