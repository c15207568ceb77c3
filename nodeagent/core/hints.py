"""What to do about each reason, in one line: for ``status``, the journal (NODEAGENT_HINT, which the catalog
shows) and docs/operations.md alike.

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
        "InvalidContent": "correct the content of the files named; nothing was touched",
        "CannotRead": "check the name of the file and who may read it (ls -l)",
        "NoPolicy": "put the policy where the setting policy says, or correct that setting",
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
        "StillUnderWay": "nodeagent status --watch shows how it goes on, also after the reboot",
        "Refused": "read the message; the same may be allowed later",
        # How an update goes on, or ended
        "Planned": "nothing: the plan has a reboot; the agent verifies the host after it",
        "Reverting": "nothing: the host is rebooted to go back to the config before; then look at nodeagent history",
        "Reverted": "the host runs the config before; nodeagent history says why; correct the config and apply it",
        "Superseded": "nothing: a newer desired config took over before anything was written",
        "PhaseLate": "nodeagent status names the step that hangs; look at it, then apply the config again",
        # Services of this host
        "ActionFailed": "systemctl status and journalctl -u of the unit show why; correct the config and apply it",
        "ActionLate": "the unit needs longer than actions.timeout; look at it with systemctl status, or raise that",
        "JobTimeout": "journalctl -u of the unit shows where it hangs; raise its TimeoutStartSec= if it is slow",
        "JobCanceled": "somebody else stopped the unit's job (journalctl -u of the unit); apply the config again",
        "JobDependency": "systemctl list-dependencies of the unit shows what did not start; correct that first",
        "JobSkipped": "the unit was not running when its job came; systemctl start it, then apply the config again",
        "JobInvalid": "the unit cannot be reloaded; ask for Restart instead of Reload in the policy",
        "JobNotApplicable": "this unit refuses manual jobs; name the unit that brings it in the policy",
        "JobConflict": "systemctl list-jobs shows what else is under way; apply the config again when that is over",
        "UnitNotFound": "correct the unit's name in the policy, or bring the unit with the config",
        "UnitMasked": "systemctl unmask it, or take it out of the policy",
        "UnitInvalid": "systemd-analyze verify shows what is wrong with the unit",
        "ShuttingDown": "nothing: the host goes down; the agent goes on after the boot",
        "UnitUnhealthy": "journalctl -u of the unit shows why it does not stay up; correct the config and apply it",
        "VerifyFailed": "nodeagent verify shows what is not as configured; correct it and apply the config again",
        "VerifyLate": "systemctl list-jobs and --failed show what does not come up; raise verify.timeout if it is slow",
        "JobFailed": "systemctl status and journalctl -u of the unit show why; correct the config and apply it",
        "RebootFailed": "the host did not go down; systemctl list-jobs shows what hangs, then reboot it by hand",
        "OperationInProgress": "another shutdown is scheduled (shutdown --show); the agent tries again by itself",
        "RevertFailed": "the host is a mixture of two configs; nodeagent verify, free the disk, apply the good config",
        # Files and disks
        "NoSpace": "free space (df -h /etc /var); the agent tries again by itself",
        "QuotaExceeded": "quota -v shows whose quota is used up; raise it or free space",
        "ReadOnly": "remount the file system for writing; dmesg shows why it is read-only",
        "DiskFault": "dmesg and smartctl show what is wrong with the disk",
        "PermissionDenied": "look for chattr +i (lsattr), SELinux (ausearch -m avc) and the mode of the path",
        "Immutable": "lsattr of the path and its directory; chattr -i where it is not wanted any more",
        "NotAFile": "remove or rename what is at the path, then apply again",
        "NotADirectory": "remove or rename the file that is in the way of the directory, then apply again",
        "NameTooLong": "use a shorter path in the config",
        "LinkRefused": "replace the link on the way to the path by a directory, or use the real path in the config",
        "PathChanged": "find out which program writes there at the same time (fatrace, auditctl)",
        "Busy": "the agent tries again by itself; lsof of the path shows who uses it",
        "OutOfMemory": "free memory (systemd-cgtop -m); the agent tries again by itself",
        "OutOfHandles": "cat /proc/sys/fs/file-nr shows how many files are open; the agent tries again by itself",
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
        "AlreadyRunning": "another nodeagent runs (systemctl status nodeagent); stop one of them",
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
        "LimitsExceeded": "too many calls at once; the agent asks again by itself",
        "NoMemory": "free memory (systemd-cgtop -m); the agent asks again by itself",
        "UnknownMethod": "the service that is named is too old or too new; see its version",
        "UnknownInterface": "the service that is named is too old or too new; see its version",
        "UnknownObject": "the service that is named is too old or too new; see its version",
        "UnknownProperty": "the service that is named is too old or too new; see its version",
        "PropertyReadOnly": "use a method instead (busctl introspect org.nodeagent.Agent1 /org/nodeagent/Agent1)",
        "InvalidArgs": "the service that is named does not take the call; see its version",
        "NotSupported": "the service that is named cannot do that on this host; see its journal",
        "BusAddressInvalid": "check DBUS_SYSTEM_BUS_ADDRESS",
        "SignalsLost": "the host sends more signals than can be read; the agent asks again by itself",
        "NoReply": "the service that is named was restarted in the middle; the agent asks again by itself",
        "AccessDenied": "run it as root (sudo), or allow it with a polkit rule",
        "NotAuthorized": "run it as root (sudo), or allow it with a polkit rule",
        "AuthorizationRequired": "run it as root (sudo), or on a terminal where polkit can ask for a password",
        "UnexpectedReply": "two versions do not fit together; nodeagent version, then restart nodeagent",
        # The agent
        "SettingsInvalid": "nodeagent config check shows file and line",
        "RestartNeeded": "systemctl restart nodeagent: this setting is read at the start only",
        "Usage": "nodeagent --help, or --help after the command",
        "TryAgain": "the agent tries again by itself",
        "IllegalTransition": "a bug: keep the journal (journalctl -u nodeagent -b) and report it",
        "AgentFailed": "a bug: keep the journal (journalctl -u nodeagent -b) and report it",
        "InternalError": "a bug: run it again with NODEAGENT_TRACEBACK=1 and report what it prints",
    }
)


def hint(reason: str) -> str:
    """ "" only where there is no reason."""
    return HINTS.get(reason, "journalctl -u nodeagent shows the details") if reason else ""
