"""What to do about each reason, in one line: for ``status``, the journal's catalog and docs/operations.md alike.

A reason is a stable word; its message says what happened on this host. The hint says what a person does next, at night
and without having read the manual. ``hint`` knows an answer for every reason, also for one of a newer agent.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["HINTS", "hint"]

HINTS: Mapping[str, str] = MappingProxyType(
    {
        # The desired config
        "InvalidInput": "correct the desired config at the paths named; nothing was touched",
        "Unreconcilable": "this change needs a new host; take it back, or install the host anew with it",
        "NoDeployments": "take the change of the operating system out of the config, or install the host anew with it",
        "UnsafeConfig": "make the desired config a plain file that only root can write",
        "ConfigUnreadable": "look at the desired config with ls -l and at its disk with dmesg",
        "TooLarge": "split the desired config, or check that the file is what it should be",
        "AdoptionFailed": "move the file that is named away, or put the right one there, and restart nodeagent",
        "NoCurrentConfig": "apply a config first: nodeagent apply FILE",
        "BadPath": "use absolute paths without . and .. in the config",
        "BadHash": "make a new hash with mkpasswd --method=yescrypt and put it into the config",
        "UnknownUser": "create the user, or take the entry out of the config",
        "UnknownGroup": "create the group, or take the entry out of the config",
        "Drifted": "nodeagent verify shows what changed; put it back, or set on_drift: repair",
        # Others in the way
        "LeaseHeld": "wait, or ask the holder (nodeagent lease show); nodeagent maintenance stop ends a maintenance",
        "LeaseLost": "find out who took the lease (nodeagent lease show); the update goes on when it is free",
        "RebootBlocked": "systemd-inhibit --list shows who; end that program, or set reboot.inhibitor_override",
        "RebootNotAllowed": "set reboot.allow: true, or take the change back",
        "NoMaintenance": "nothing to stop; nodeagent lease show says who holds the lease",
        "NoReason": "say why: nodeagent maintenance start --reason TEXT",
        "Refused": "read the message; the same may be allowed later",
        # Services of this host
        "ActionFailed": "systemctl status and journalctl -u of the unit show why; correct the config and apply it",
        "ActionLate": "the unit needs longer than actions.timeout; look at it with systemctl status, or raise that",
        "UnitUnhealthy": "journalctl -u of the unit shows why it does not stay up; correct the config and apply it",
        "VerifyFailed": "nodeagent verify shows what is not as configured; correct it and apply the config again",
        "VerifyLate": "systemctl list-jobs and --failed show what does not come up; raise verify.timeout if it is slow",
        "RebootFailed": "the host did not go down; systemctl list-jobs shows what hangs, then reboot it by hand",
        "RevertFailed": "the host is a mixture of two configs; nodeagent verify, free the disk, apply the good config",
        # Files and disks
        "NoSpace": "free space (df -h /etc /var); the agent tries again by itself",
        "ReadOnly": "remount the file system for writing; dmesg shows why it is read-only",
        "DiskFault": "dmesg and smartctl show what is wrong with the disk",
        "PermissionDenied": "look for chattr +i (lsattr), SELinux (ausearch -m avc) and the mode of the path",
        "NotAFile": "remove or rename what is at the path, then apply again",
        "LinkRefused": "replace the link on the way to the path by a directory, or use the real path in the config",
        "PathChanged": "find out which program writes there at the same time (fatrace, auditctl)",
        "FileTooLarge": "take the file out of the config, or remove it by hand first",
        "HostFault": "journalctl -u nodeagent shows what the host answered",
        # Accounts
        "PasswordNotSet": "try chpasswd by hand; journalctl -t chpasswd shows what PAM says",
        "ToolMissing": "install the tool that is named",
        "ToolTimedOut": "find out what holds the lock on the accounts (lsof /etc/.pwd.lock)",
        # The store
        "StoreCorrupt": "keep the file for a report, move it away, restart nodeagent: what is right already stays",
        "StoreTooNew": "go forward to the newer nodeagent again; this one does not touch a newer store",
        "StoreBusy": "another nodeagent runs (systemctl status nodeagent); stop one of them",
        "StoreNeedsRecovery": "start the daemon once: systemctl start nodeagent",
        "StoreFault": "journalctl -u nodeagent has SQLite's message; check the disk",
        "StoreClosed": "restart nodeagent; if it comes again, it is a bug worth a report",
        "ForeignStore": "make root the owner of the store, or move it away",
        "NoStore": "the agent never ran here: systemctl enable --now nodeagent",
        # The bus and the daemon
        "Unreachable": "systemctl status nodeagent, and journalctl -u nodeagent for why it does not run",
        "ServiceUnknown": "the service does not run: systemctl status of it; for the agent, systemctl start nodeagent",
        "BusUnreachable": "systemctl status dbus; the agent connects again by itself",
        "BusConnectionLost": "the bus was restarted; the agent connects again by itself",
        "BusTimeout": "the service that is named hangs; systemctl status of it",
        "BusRefused": "the bus does not let us in; run it as root, and look at the policy of the bus",
        "BusCallFailed": "journalctl of the service that is named shows why it said no",
        "BusAddressInvalid": "check DBUS_SYSTEM_BUS_ADDRESS",
        "SignalsLost": "the host sends more signals than can be read; the agent asks again by itself",
        "NoReply": "the service that is named was restarted in the middle; the agent asks again by itself",
        "AccessDenied": "run it as root (sudo), or allow it with a polkit rule",
        "AuthorizationRequired": "run it as root (sudo), or on a terminal where polkit can ask for a password",
        "UnexpectedReply": "two versions do not fit together; nodeagent version, then restart nodeagent",
        # The agent
        "SettingsInvalid": "nodeagent config check shows file and line",
        "TryAgain": "the agent tries again by itself",
        "IllegalTransition": "a bug: keep the journal (journalctl -u nodeagent -b) and report it",
        "AgentFailed": "a bug: keep the journal (journalctl -u nodeagent -b) and report it",
    }
)


def hint(reason: str) -> str:
    """ "" only where there is no reason."""
    return HINTS.get(reason, "journalctl -u nodeagent shows the details") if reason else ""
