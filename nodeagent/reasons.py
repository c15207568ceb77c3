# SPDX-License-Identifier: Apache-2.0
"""The reasons: stable words that say why something failed, was refused or has to wait.

A reason is part of the contract: scripts match it in `nodeagent status --json`, in errors, in the journal
(NODEAGENT_REASON), in metrics and in the names of D-Bus errors. Its kind gives the exit status. Its hint is the next
step for an admin who has not read the manual: in ``status``, journal (NODEAGENT_HINT) and docs/reference/reasons.md.
Its meaning is a sentence in ``nodeagent explain REASON`` and on that page.
"""

from __future__ import annotations

from collections.abc import Sequence

from nodeagent.installed import doors
from nodeagent.kinds import AnyReason, Kind, ReasonEnum

# Address of the published documentation, as in pyproject.toml.
DOCUMENTATION = "https://github.com/nodeagent/nodeagent/tree/main/docs"


class Reason(ReasonEnum):
    """The reasons of the base. The comments are the headings of the reference."""

    # fmt: off
    # The desired config
    INVALID_INPUT = "InvalidInput", Kind.INPUT, "correct the desired config at the named paths; the host is unchanged", "The desired config, or another input, has keys or values that break a rule."
    INVALID_CONTENT = "InvalidContent", Kind.INPUT, "correct the content of the named files; the host is unchanged", "The content of a file of the config would make its program fail."
    NOT_MACHINE_CONFIG = "NotMachineConfig", Kind.INPUT, "convert the file to a MachineConfig as the message describes; the host is unchanged", "The file is another kind of document, such as a Butane or Ignition config, or several of them."
    CANNOT_READ = "CannotRead", Kind.INPUT, "check the name and the permissions of the file (ls -l)", "A file that a command names cannot be read by this user."
    CANNOT_WRITE = "CannotWrite", Kind.INPUT, "name a file in a directory that you can write, and no link; - is standard output", "A file that a command should write cannot be created or replaced."
    POLICY_INVALID = "PolicyInvalid", Kind.INPUT, "correct the named entry of the policy (nodeagent settings check, nodeagent explain); the host is unchanged", "An entry of the disruption policy breaks a rule, so no plan can be made with it."
    UNIT_MISSING = "UnitMissing", Kind.INPUT, "correct the name in the config, or install what brings the unit; the entry has no effect until then", "The config enables or changes a unit that is neither on this host nor in the config."
    NO_POLICY = "NoPolicy", Kind.INPUT, "create the file that the setting policy names, or correct the setting", "The policy file that the settings name does not exist."
    UNRECONCILABLE = "Unreconcilable", Kind.UNRECONCILABLE, "remove this change from the config, or reinstall the host with it", "The config changes something that only an installation can set, such as disks or LUKS."
    IMAGE_INVALID = "ImageInvalid", Kind.INPUT, "correct osImageURL: NAME@sha256:DIGEST, or ostree://REMOTE/BRANCH@CHECKSUM", "osImageURL has none of the forms that name an image or a commit."
    IMAGE_NOT_PINNED = "ImageNotPinned", Kind.INPUT, "put the digest into the reference (skopeo inspect shows it); the host is unchanged", "osImageURL has a tag, so the image behind it could change without a change of the config."
    NAME_UNREAD = "NameUnread", Kind.INPUT, "rename the named entry below /etc/nodeagent, or move it away; then: systemctl reload nodeagent", "An entry below /etc/nodeagent has a name by which nothing reads it, so it has no effect."
    UNSAFE_CONFIG = "UnsafeConfig", Kind.INPUT, "make the desired config a regular file that only root can write", "Another user than root could change the desired config, so it is not read."
    CONFIG_UNREADABLE = "ConfigUnreadable", Kind.FAULT, "check the desired config with ls -l and its disk with dmesg", "The desired config, or a policy file, exists and cannot be read."
    TOO_LARGE = "TooLarge", Kind.INPUT, "split the desired config, or check that it is the right file", "The config is larger than any that a cluster can store."
    NO_CURRENT_CONFIG = "NoCurrentConfig", Kind.REFUSED, "apply a config first: nodeagent apply FILE", "No config was applied on this host yet, so there is nothing to compare with."
    UNKNOWN_CONFIG = "UnknownConfig", Kind.INPUT, "use the name of a config in nodeagent history; the current, the previous and the last two are kept", "The store has no config of this name: it keeps the last ones only."
    BAD_PATH = "BadPath", Kind.INPUT, "use absolute paths without . and .. in the config", "A path of the config is relative, or leads through . or .. to another place."
    BAD_HASH = "BadHash", Kind.INPUT, "create a hash with mkpasswd --method=yescrypt and put it into the config", "The password hash of the config has no form that the host can check."
    UNKNOWN_USER = "UnknownUser", Kind.FAULT, "create the user, or remove the entry from the config", "The owner of a file, or a user of the config, does not exist on this host."
    UNKNOWN_GROUP = "UnknownGroup", Kind.FAULT, "create the group, or remove the entry from the config", "The group of a file does not exist on this host."
    DRIFTED = "Drifted", Kind.REFUSED, "nodeagent verify shows what differs; undo it, put it into the config, or let on_drift: repair overwrite it", "Managed entries differ from the current config, because another program or an admin changed them."

    # Others in the way
    LEASE_HELD = "LeaseHeld", Kind.REFUSED, "wait, or ask the holder (nodeagent lease show); nodeagent maintenance stop ends a maintenance", "Another holder has the right to disrupt this host, so the update waits before its first write."
    LEASE_LOST = "LeaseLost", Kind.REFUSED, "nodeagent lease show names the new holder; apply the config again to continue", "Another holder took the lease during the update, so the agent changes nothing more."
    LEASE_GIVEN_BACK = "LeaseGivenBack", Kind.REFUSED, "if nothing was written, the update starts again; otherwise check the host and apply again", "The lease was released or deleted while the agent held it."
    LEASE_EXPIRED = "LeaseExpired", Kind.REFUSED, "the API server was away for too long; the agent takes the lease again when it answers", "The lease could not be renewed in time, so another holder may have it."
    REBOOT_BLOCKED = "RebootBlocked", Kind.REFUSED, "end the program that systemd-inhibit --list shows, wait, or take the update back with nodeagent cancel", "A program asked logind to keep the host from going down, so the reboot waits."
    USERS_WARNED = "UsersWarned", Kind.FAULT, "wait: the host goes down at that time; reboot.warn_users sets how long users are warned", "The reboot is announced to users who are logged in, and follows at the named time."
    POWER_OFF_BLOCKED = "PowerOffBlocked", Kind.REFUSED, "end the program (systemd-inhibit --list) and start again, or set reboot.inhibitor_override", "A program asked logind to keep the host from going down, so it is not powered off."
    REBOOT_NOT_ALLOWED = "RebootNotAllowed", Kind.REFUSED, "set reboot.allow: true, or remove the change from the config", "The config needs a reboot, and the settings forbid every reboot."
    DISRUPTION_EXCEEDED = "DisruptionExceeded", Kind.REFUSED, "split the config, extend the policy, or raise --max-disruption", "The plan disrupts more than the request allows, so nothing was changed."
    BAD_OPTION = "BadOption", Kind.INPUT, "update the daemon (nodeagent version shows both versions), or omit the option", "The daemon does not know an option of the request, and does not ignore it, because it may be a limit."
    STILL_UNDER_WAY = "StillUnderWay", Kind.REFUSED, "nodeagent status --watch follows the update, also after the reboot", "The command was stopped before the update ended; the update goes on."
    REFUSED = "Refused", Kind.REFUSED, "see the message; it may be allowed later", "The request is valid and cannot be done in the present state."
    REMOVES_MOST = "RemovesMost", Kind.REFUSED, "name the complete config, or remove half at a time; without a cluster: nodeagent apply --remove NUMBER FILE", "The config lacks more than half of the entries of the current one, which is mostly a mistake."
    LOCKOUT = "Lockout", Kind.UNRECONCILABLE, "give core an SSH key or a password hash; without a cluster: nodeagent apply --allow-lockout FILE", "With this config, core could not log in any more."
    CONFIG_REJECTED = "ConfigRejected", Kind.REFUSED, "correct it, or try it again: nodeagent apply FILE; in a cluster: nodeagent.org/retry=NAME on the Node", "An update to this config was taken back before, so it is not applied again without a request."
    ROLLED_BACK = "RolledBack", Kind.REFUSED, "run nodeagent apply FILE to retry it, or replace it with another config", "An operator went back from this config, so it is not applied again without a request."
    UPDATE_UNDER_WAY = "UpdateUnderWay", Kind.REFUSED, "wait until the update has ended (nodeagent status --watch), then retry", "An update is changing the host, so it is not known from what another one would start."
    NO_SUCH_UPDATE = "NoSuchUpdate", Kind.INPUT, "nodeagent history shows the ids of the updates; the beginning of one is enough", "The history has no update, or more than one, whose id begins so."
    NO_PREVIOUS = "NoPrevious", Kind.REFUSED, "apply the config you want: nodeagent apply FILE", "There is no config before the current one that a rollback could return to."
    CHECKER_LATE = "CheckerLate", Kind.REFUSED, "find out why the program waits with the named file (an Include of a pipe, a busy host); the agent retries", "A program of the host that checks a file of the config did not end in time."

    # The operating system
    NO_DEPLOYMENTS = "NoDeployments", Kind.UNRECONCILABLE, "remove the change of the operating system: this host is not image-based", "The config changes the OS, and this host has no deployments of an image-based OS."
    NO_BOOTED_DEPLOYMENT = "NoBootedDeployment", Kind.FAULT, "ostree admin status shows the deployments; boot one of them", "The host did not boot any of its deployments."
    OTHER_DRIVER = "OtherDriver", Kind.REFUSED, "mask the other updater (systemctl mask --now zincati), or remove the OS from the config", "Another program updates the OS of this host, and two must not."
    STAGED_BY_OTHER = "StagedByOther", Kind.REFUSED, "ostree admin status shows it; reboot to keep it, or run ostree admin undeploy 0 to drop it", "Another program has staged a deployment, which a reboot would boot."
    STAGED_UNLOCKED = "StagedUnlocked", Kind.REFUSED, "stop what unlocks it (another updater or its timer, ostree admin lock-finalization); do not reboot until then", "The staged deployment lost its lock, so any reboot would boot it before its time."
    STAGED_LOST = "StagedLost", Kind.REFUSED, "it was removed, or the host kept going down while it was staged: journalctl -b -1, apply again", "The deployment that the update had staged is gone."
    STAGE_FAILED = "StageFailed", Kind.RETRY, "the message has the error, and the journal of that time the details; the agent retries", "The next deployment could not be staged; the host runs as before."
    STAGE_INCOMPLETE = "StageIncomplete", Kind.FAULT, "something else than requested was staged (ostree admin status, the journal of that time); report it", "The staged deployment is not the one that was requested."
    DISCARD_FAILED = "DiscardFailed", Kind.FAULT, "run ostree admin undeploy 0 to see the error, then apply the config again", "A staged deployment that is no longer wanted could not be removed."
    LOCKED_SOFT_REBOOT = "LockedSoftReboot", Kind.REFUSED, "ostree admin prepare-soft-reboot --reset; until then do not run systemctl reboot", "A soft reboot into the staged deployment is prepared, which its lock does not prevent."
    SOFT_REBOOT_FAILED = "SoftRebootFailed", Kind.FAULT, "wait: a full reboot follows; systemctl list-jobs and journalctl -b show what held the soft one up", "The soft reboot did not come about in time."
    UNLOCK_FAILED = "UnlockFailed", Kind.FAULT, "ostree admin status and journalctl -u ostree-finalize-staged show why; then apply again", "The staged deployment could not be unlocked for the reboot."
    COMMAND_FAILED = "CommandFailed", Kind.FAULT, "run the named command; its message shows the error", "A program that the agent started for a step ended with an error."
    COMMAND_TIMED_OUT = "CommandTimedOut", Kind.FAULT, "journalctl -u of the named unit shows where the command hangs; then apply the config again", "A program that the agent started for a step did not end in time, and was stopped."
    REGISTRY_UNREACHABLE = "RegistryUnreachable", Kind.RETRY, "check network, proxy and the registry from this host; the agent retries", "The registry of the image does not answer."
    IMAGE_BROKEN = "ImageBroken", Kind.FAULT, "that image is no OS that boots here (the message says why); correct it, then osImageURL", "The image was pulled and is no OS that this host can boot."
    IMAGE_UNSERVED = "ImageUnserved", Kind.FAULT, "build one of the programs of the message into the image, then name the new image in osImageURL", "The new image has no program that could update the OS again, or take this update back."
    NO_BOOT_ENTRY = "NoBootEntry", Kind.RETRY, "ls /boot/loader/entries and findmnt /boot: mount it, then ostree admin status must work", "The boot entry of a deployment cannot be found, mostly because /boot is not mounted."
    IMAGE_NOT_FOUND = "ImageNotFound", Kind.FAULT, "the registry has no such image (or digest): correct osImageURL, or push it", "The registry answers, and does not have the image."
    UNAUTHORIZED = "Unauthorized", Kind.FAULT, "correct the pull secret (/var/lib/kubelet/config.json) in the config; skopeo login tests it", "The registry refuses the image to the credentials of this host."
    SIGNATURE_INVALID = "SignatureInvalid", Kind.FAULT, "sign the image with a key that /etc/containers/policy.json knows, or correct that", "The image is not signed as the policy of the host demands."
    BOOT_FULL = "BootFull", Kind.REFUSED, "free space in /boot (ls -l /boot; ostree admin status shows rollback and pinned deployments)", "/boot has no space for the kernel of another deployment."
    FINALIZE_FAILED = "FinalizeFailed", Kind.FAULT, "journalctl -b -1 -u ostree-finalize-staged; often /boot is full; then apply again", "The staged deployment did not become the default when the host went down."
    OLD_DEPLOYMENT_BOOTED = "OldDeploymentBooted", Kind.FAULT, "it was chosen in the boot menu; apply the config again", "The host booted the old deployment although the new one was the default."
    BOOT_FAILED = "BootFailed", Kind.FAULT, "see how far it came on the console, or in journalctl --list-boots; then correct the image", "The boots of the new deployment failed, and the host returned to the old one."
    DEPLOYMENT_WRONG = "DeploymentWrong", Kind.FAULT, "ostree admin status and ls /boot/loader/entries show what the new deployment lacks; report it", "The new deployment is booted and lacks something that was requested, such as a kernel argument."
    NO_ROLLBACK = "NoRollback", Kind.FAULT, "there is no other deployment; apply the config you want", "No other deployment is left that the host could return to."
    ROLLBACK_ASKS_PASSWORD = "RollbackAsksPassword", Kind.FAULT, "ostree admin deploy shows why; or boot the old deployment with the password of GRUB", "The boot entry of the old deployment would ask for a password at the console."
    ROLLBACK_FAILED = "RollbackFailed", Kind.FAULT, "boot the old deployment (ostree admin status), then apply the config you want", "The old deployment could not be made the default again."
    MERGED = "Merged", Kind.FAULT, "no action: files that the OS update replaced are written again, and the host is rebooted", "The OS update replaced managed files during the merge of /etc."

    # The course and the end of an update
    PLANNED = "Planned", Kind.FAULT, "no action: the plan has a reboot; the agent verifies the host after it", "The reboot is part of the plan."
    REVERTING = "Reverting", Kind.FAULT, "no action: the host reboots to return to the previous config; then see nodeagent history", "The update failed, and the previous config is being restored."
    REVERTED = "Reverted", Kind.FAULT, "the previous config is in force again; nodeagent history shows why; correct the config and apply it", "The update failed, and the previous config is restored and in force."
    REBOOT_BUDGET_SPENT = "RebootBudgetSpent", Kind.FAULT, "find out why actions keep failing (nodeagent history), or reboot the host manually", "The updates of the last hours used up the reboots that the agent allows itself."
    SUPERSEDED = "Superseded", Kind.FAULT, "nodeagent status shows the update to the config that took its place", "Another config became the desired one before anything was written."
    WITHDRAWN = "Withdrawn", Kind.FAULT, "to apply it after all: nodeagent apply FILE; the host runs its current config", "The current config became the desired one again before anything was written."
    CANCELLED = "Cancelled", Kind.REFUSED, "to apply it after all: nodeagent apply FILE; in a cluster: nodeagent.org/retry=NAME on the Node", "An operator cancelled the update to this config."
    CANCEL_TOO_LATE = "CancelTooLate", Kind.REFUSED, "wait for the end (nodeagent status --watch), then run nodeagent rollback", "Only a reboot leads back from where the update is, so it cannot be cancelled."
    NO_UPDATE = "NoUpdate", Kind.REFUSED, "there is nothing to cancel; nodeagent history lists past updates", "No update is under way."
    PHASE_LATE = "PhaseLate", Kind.FAULT, "nodeagent status names the step that hangs; check it, then apply the config again", "A phase of the update took longer than it may."

    # Services of this host
    ACTION_FAILED = "ActionFailed", Kind.FAULT, "systemctl status and journalctl -u of the unit show why; correct the config and apply it", "A stop, reload or restart of the plan failed."
    ACTION_LATE = "ActionLate", Kind.FAULT, "the unit needs longer than actions.timeout; see systemctl status, or raise the setting", "A stop, reload or restart of the plan did not end in time."
    RELOAD_REJECTED = "ReloadRejected", Kind.FAULT, "correct the file that the message names; the program still has its previous configuration", "The program refused its new configuration at a reload, and goes on with the old one."
    JOB_TIMEOUT = "JobTimeout", Kind.FAULT, "journalctl -u of the unit shows where it hangs; raise its TimeoutStartSec= if it is slow", "systemd gave up a job of the unit after its own timeout."
    JOB_CANCELED = "JobCanceled", Kind.FAULT, "another client stopped the unit's job (journalctl -u of the unit); apply the config again", "The job of the unit was cancelled before it ended."
    CONDITION_NOT_MET = "ConditionNotMet", Kind.FAULT, "none needed if the condition is intended; systemctl status of the unit shows it", "systemd skipped the start of the unit because of one of its conditions."
    JOB_ASSERT = "JobAssert", Kind.FAULT, "systemctl status of the unit shows which Assert setting is not met; correct that first", "systemd refused the start of the unit because of one of its assertions."
    JOB_DEPENDENCY = "JobDependency", Kind.FAULT, "systemctl list-dependencies of the unit shows what did not start; correct that first", "A unit that this one needs could not be started."
    JOB_SKIPPED = "JobSkipped", Kind.FAULT, "the unit was not running when its job came; systemctl start it, then apply the config again", "systemd had nothing to do for the job, because the unit was not running."
    JOB_INVALID = "JobInvalid", Kind.FAULT, "the unit cannot be reloaded; use Restart instead of Reload in the policy", "systemd cannot do this job for a unit of this kind."
    JOB_NOT_APPLICABLE = "JobNotApplicable", Kind.FAULT, "this unit refuses manual jobs; name the unit that starts it in the policy", "The unit does not accept jobs that are requested by hand."
    JOB_CONFLICT = "JobConflict", Kind.FAULT, "systemctl list-jobs shows the other job; apply the config again when it has ended", "Another job of systemd contradicts this one."
    UNIT_EXISTS = "UnitExists", Kind.FAULT, "another unit has this name; systemctl status shows it", "A unit of this name exists already."
    UNIT_NOT_FOUND = "UnitNotFound", Kind.FAULT, "correct the unit's name in the config or the policy, or add the unit to the config", "systemd has no unit of this name."
    UNIT_MASKED = "UnitMasked", Kind.FAULT, "systemctl unmask it, or remove it from the config or the policy that names it", "The unit is masked, so it cannot be started."
    UNIT_INVALID = "UnitInvalid", Kind.FAULT, "systemd-analyze verify shows what is wrong with the unit", "systemd cannot load the unit, because its file is not valid."
    SHUTTING_DOWN = "ShuttingDown", Kind.RETRY, "no action: the host goes down; the agent continues after the boot", "The host is going down, so systemd accepts no further jobs."
    UNIT_UNHEALTHY = "UnitUnhealthy", Kind.FAULT, "journalctl -u of the unit shows why it does not stay up; correct the config and apply it", "The unit was started and did not stay up, or its check failed."
    VERIFY_FAILED = "VerifyFailed", Kind.FAULT, "the message names what differs; another entry or program may have changed it; correct the config, apply it", "After the actions, the host is not as the config says."
    VERIFY_LATE = "VerifyLate", Kind.FAULT, "journalctl -u of the unit shows what it waits for; raise verify.timeout if it is slow", "A unit was not up when the time for the verification ended."
    JOB_FAILED = "JobFailed", Kind.FAULT, "systemctl status and journalctl -u of the unit show why; correct the config and apply it", "A job of systemd failed."
    REBOOT_FAILED = "RebootFailed", Kind.FAULT, "the host did not go down; systemctl list-jobs shows what hangs, then reboot it manually", "The reboot was requested and accepted, and the host did not go down."
    OPERATION_IN_PROGRESS = "OperationInProgress", Kind.RETRY, "another shutdown is scheduled (shutdown --show); the agent retries", "logind has another shutdown or sleep in progress."
    REVERT_FAILED = "RevertFailed", Kind.FAULT, "the host has parts of two configs; run nodeagent verify, free the disk, apply the good config", "The previous config could not be restored completely."

    # Files and disks
    NO_SPACE = "NoSpace", Kind.FAULT, "free space (df -h /etc /var); the agent retries", "A file system is full."
    QUOTA_EXCEEDED = "QuotaExceeded", Kind.FAULT, "quota -v shows whose quota is used up; raise it or free space", "A quota of the file system is used up."
    READ_ONLY = "ReadOnly", Kind.FAULT, "remount the file system for writing; dmesg shows why it is read-only", "A path of the config is on a file system that cannot be written."
    DISK_FAULT = "DiskFault", Kind.FAULT, "dmesg and smartctl show what is wrong with the disk", "The disk reported an error."
    PERMISSION_DENIED = "PermissionDenied", Kind.FAULT, "check for chattr +i (lsattr), SELinux (ausearch -m avc) and the mode of the path", "The kernel refused root the access to a path."
    IMMUTABLE = "Immutable", Kind.FAULT, "check lsattr of the path and its directory; run chattr -i if it is not intended", "The path, or its directory, has the attribute immutable."
    NOT_A_FILE = "NotAFile", Kind.FAULT, "remove or rename what is at the path, then apply again", "Something else than a regular file is at a path of the config."
    NOT_A_DIRECTORY = "NotADirectory", Kind.FAULT, "remove or rename the file that is in the way of the directory, then apply again", "A file is where the path of the config needs a directory."
    PATH_BLOCKED = "PathBlocked", Kind.REFUSED, "move away what is at the path, or use one that this host can write and keeps, such as below /etc or /var", "The host cannot keep a file at this path, or something that is not managed is in the way."
    PATH_CONTESTED = "PathContested", Kind.FAULT, "look at the path: its owner changed it or keeps root out; the rest of the config is applied", "Another user controls the path and changed it during the write, so the entry is left out."
    REVERT_TOO_LARGE = "RevertTooLarge", Kind.REFUSED, "move some of the large files away, or change them in several configs", "The files that the update would replace are too large to be kept for a revert."
    NAME_TOO_LONG = "NameTooLong", Kind.FAULT, "use a shorter path in the config", "A name or a path of the config is longer than the file system allows."
    LINK_REFUSED = "LinkRefused", Kind.FAULT, "replace the link on the way to the path by a directory, or use the real path in the config", "A symbolic link is on the way to the path, and nodeagent follows none there."
    PATH_CHANGED = "PathChanged", Kind.RETRY, "find out which program writes there at the same time (fatrace, auditctl)", "Another program changed the path while it was written."
    BUSY = "Busy", Kind.RETRY, "lsof of the path shows which program uses it; the agent retries", "Another program uses the path or the device."
    OUT_OF_MEMORY = "OutOfMemory", Kind.RETRY, "free memory (systemd-cgtop -m); the agent retries", "The kernel had no memory for the request."
    OUT_OF_HANDLES = "OutOfHandles", Kind.RETRY, "cat /proc/sys/fs/file-nr shows the number of open files; the agent retries", "The process or the host has no file descriptors left."
    FILE_TOO_LARGE = "FileTooLarge", Kind.FAULT, "remove the file from the config, or move the one on the host away first", "The file is larger than the limit for managed files."
    HOST_FAULT = "HostFault", Kind.FAULT, "journalctl -u nodeagent shows what the host answered", "The host answered a request with an error that has no reason of its own."

    # Accounts
    USER_BLOCKED = "UserBlocked", Kind.REFUSED, "correct the entry of the user (uid, homeDir, groups), or make it with a file in /etc/sysusers.d", "The host has another account of that name, or lacks what a new account needs."
    USER_NOT_CHANGED = "UserNotChanged", Kind.FAULT, "run the named tool (useradd, usermod, gpasswd) manually; it shows the error", "An account could not be created or changed."
    PASSWORD_NOT_SET = "PasswordNotSet", Kind.FAULT, "run chpasswd manually; journalctl -t chpasswd shows PAM's error", "The password of a user could not be set."
    TOOL_MISSING = "ToolMissing", Kind.FAULT, "install the named tool", "A program that the step needs is not installed."
    TOOL_TIMED_OUT = "ToolTimedOut", Kind.RETRY, "find out what holds the lock on the accounts (lsof /etc/.pwd.lock)", "A program that changes accounts waited for a lock for too long."

    # The store
    STORE_CORRUPT = "StoreCorrupt", Kind.FAULT, "nodeagent apply FILE replaces a damaged record; otherwise move the file away and report it", "The store of the agent, or a record in it, is damaged."
    RECORD_TOO_NEW = "RecordTooNew", Kind.FAULT, "upgrade nodeagent again, which resumes the update; nodeagent apply FILE ends that update", "A newer nodeagent left an update under way that this version cannot read."
    RECORD_UNREADABLE = "RecordUnreadable", Kind.FAULT, "nodeagent apply FILE ends that update; what the disk has already is no change", "The record of an update under way cannot be read, so the disk may hold parts of two configs."
    STORED_CONFIG_INVALID = "StoredConfigInvalid", Kind.INPUT, "wait: the next update replaces it; a rollback to that config is refused", "A stored config breaks a rule that is new in this version."
    STORE_TOO_NEW = "StoreTooNew", Kind.FAULT, "upgrade nodeagent again; this version does not touch a newer store", "A newer nodeagent wrote the store."
    STORE_BUSY = "StoreBusy", Kind.RETRY, "another nodeagent runs (systemctl status nodeagent); stop one of them", "Another process has the store locked."
    ALREADY_RUNNING = "AlreadyRunning", Kind.FAULT, "another nodeagent runs (systemctl status nodeagent); stop one of them", "Another daemon runs on this host."
    STORE_NEEDS_RECOVERY = "StoreNeedsRecovery", Kind.RETRY, "start the daemon once: systemctl start nodeagent", "The store was not closed cleanly, and only the daemon may recover it."
    STORE_FAULT = "StoreFault", Kind.FAULT, "journalctl -u nodeagent has SQLite's message; check the disk", "SQLite reported an error of the store."
    STORE_CLOSED = "StoreClosed", Kind.FAULT, "restart nodeagent; if it happens again, report a bug", "The store was used after it had been closed, which is a bug."
    FOREIGN_STORE = "ForeignStore", Kind.FAULT, "make root the owner of the store, or move it away", "The store belongs to another user than root, so it is not trusted."
    NO_STORE = "NoStore", Kind.FAULT, "the agent never ran here: systemctl enable --now nodeagent", "This host has no store."

    # The bus and the daemon
    UNREACHABLE = "Unreachable", Kind.UNREACHABLE, "systemctl status nodeagent, and journalctl -u nodeagent for the error", "A service that the request needs does not answer."
    SERVICE_UNKNOWN = "ServiceUnknown", Kind.UNREACHABLE, "systemctl status of the service shows why it does not run; systemctl start nodeagent", "The service is not on the bus: it does not run, and the bus cannot start it."
    PROGRAM_NOT_STARTED = "ProgramNotStarted", Kind.RETRY, "free processes, memory or open files (systemd-cgtop, ps -eLf); the agent continues when the program starts", "The kernel could not start a program, because processes, memory or files ran out."
    SERVICE_UNAVAILABLE = "ServiceUnavailable", Kind.RETRY, "systemctl status of the named service; the agent continues when it answers", "A service of the host that the update needs is away, so the update waits."
    BUS_UNREACHABLE = "BusUnreachable", Kind.UNREACHABLE, "systemctl status dbus; the agent reconnects", "The system bus does not answer."
    BUS_CONNECTION_LOST = "BusConnectionLost", Kind.UNREACHABLE, "the bus was restarted; the agent reconnects", "The connection to the system bus ended."
    BUS_TIMEOUT = "BusTimeout", Kind.UNREACHABLE, "the named service hangs (systemctl status of it); the agent continues when it answers", "A service on the bus did not answer in time."
    BUS_REFUSED = "BusRefused", Kind.REFUSED, "run the command as root, and check the policy of the bus", "The policy of the bus does not allow the call."
    BUS_CALL_FAILED = "BusCallFailed", Kind.FAULT, "journalctl of the named service shows the error", "A service on the bus answered with an error that has no reason of its own."
    CALL_TOO_LARGE = "CallTooLarge", Kind.REFUSED, "run it as root (sudo), who may send 32 MiB; others may send a config of 2 MiB", "The request is larger than this user may send."
    LIMITS_EXCEEDED = "LimitsExceeded", Kind.UNREACHABLE, "too many calls at once; the agent retries", "A limit of the bus or of the daemon for calls at once is reached."
    NO_MEMORY = "NoMemory", Kind.RETRY, "free memory (systemd-cgtop -m); the agent retries", "A service on the bus had no memory for the call."
    UNKNOWN_METHOD = "UnknownMethod", Kind.FAULT, "the named service is too old or too new; check its version", "The service does not have the method that was called."
    UNKNOWN_OBJECT = "UnknownObject", Kind.FAULT, "the named service is too old or too new; check its version", "The service does not have the object that was called."
    UNKNOWN_PROPERTY = "UnknownProperty", Kind.FAULT, "the named service is too old or too new; check its version", "The service does not have the property that was read."
    INVALID_ARGS = "InvalidArgs", Kind.FAULT, "the named service does not accept the call; check its version", "The service does not accept the arguments of the call."
    NOT_SUPPORTED = "NotSupported", Kind.FAULT, "the named service cannot do that on this host; see its journal", "The service cannot do what was requested on this host."
    BUS_ADDRESS_INVALID = "BusAddressInvalid", Kind.FAULT, "check DBUS_SYSTEM_BUS_ADDRESS", "The address of the system bus in the environment has no valid form."
    SIGNALS_LOST = "SignalsLost", Kind.RETRY, "the host sends more signals than can be read; the agent retries", "Signals of the bus were dropped, so the agent reads the state again."
    NO_REPLY = "NoReply", Kind.UNREACHABLE, "the named service was restarted during the call; the agent retries", "The service ended before it answered the call."
    ACCESS_DENIED = "AccessDenied", Kind.REFUSED, "run the command as root (sudo), or allow it with a polkit rule", "This user may not do what was requested."
    NOT_AUTHORIZED = "NotAuthorized", Kind.REFUSED, "run the command as root (sudo), or allow it with a polkit rule", "polkit does not allow the request to this user."
    AUTHORIZATION_REQUIRED = "AuthorizationRequired", Kind.REFUSED, "run it as root (sudo), or on a terminal where polkit can prompt for a password", "polkit would allow the request after a password, and no operator can enter it here."
    UNEXPECTED_REPLY = "UnexpectedReply", Kind.FAULT, "client and daemon do not match (nodeagent version); restart nodeagent", "The answer of the daemon has another form than this client expects."

    # The cluster
    CLIENT_MISSING = "ClientMissing", Kind.FAULT, "install it with pip install nodeagent[cluster]; the package contains it", "The library for the API server is not installed."
    KUBECONFIG_INVALID = "KubeconfigInvalid", Kind.INPUT, "check the named file with kubectl --kubeconfig FILE config view", "The kubeconfig is missing, or has no usable cluster and credentials."
    KUBE_UNREACHABLE = "KubeUnreachable", Kind.UNREACHABLE, "kubectl --kubeconfig FILE get --raw /readyz from this host; the agent retries", "The API server does not answer."
    KUBE_UNAUTHORIZED = "KubeUnauthorized", Kind.UNREACHABLE, "renew the agent's token or certificate; no restart is needed", "The API server does not accept the token or the certificate."
    KUBE_FORBIDDEN = "KubeForbidden", Kind.REFUSED, "grant the agent's role the named verb and resource", "The role of the agent, or of the user, lacks a right."
    KUBE_SERVER_FAULT = "KubeServerFault", Kind.RETRY, "check the API server and its etcd (/readyz?verbose); the agent retries", "The API server answered with an error of its own."
    KUBE_THROTTLED = "KubeThrottled", Kind.RETRY, "the API server is busy; the agent retries", "The API server asked to slow down."
    KUBE_NOT_FOUND = "KubeNotFound", Kind.FAULT, "the named object is not in the cluster; check the name, or create it", "The API server does not have the object."
    KUBE_EXPIRED = "KubeExpired", Kind.FAULT, "no action: the agent reads the list again", "The place in the list of changes is too old for the API server."
    KUBE_CONFLICT = "KubeConflict", Kind.RETRY, "no action: another client changed the object; the agent reads it again", "Another client changed the object since it was read."
    KUBE_ALREADY_EXISTS = "KubeAlreadyExists", Kind.RETRY, "no action: another client created the object; the agent reads it", "Another client created the object first."
    KUBE_REJECTED = "KubeRejected", Kind.FAULT, "the API server rejects the request; see the message, and check the versions of both", "The API server does not accept the request as it is."
    KUBE_NO_DATE = "KubeNoDate", Kind.RETRY, "a proxy removes the Date header from answers; bypass it, or let it pass the header", "Answers of the API server have no date, so the age of a lease is not known."
    LEASE_NAMESPACE_MISSING = "LeaseNamespaceMissing", Kind.FAULT, "create the named namespace, with the role for the agent", "The namespace of the leases does not exist in the cluster."
    NO_MACHINE_ID = "NoMachineId", Kind.FAULT, "systemd-machine-id-setup, then restart nodeagent; every host of a fleet needs its own id", "/etc/machine-id is missing or empty, so this host has no identity for a lease."
    DRAIN_TIMED_OUT = "DrainTimedOut", Kind.REFUSED, "the message names the remaining pods and why; drain.on_deadline sets what happens next", "Pods were still on the node when the time for the drain ended."
    DRAIN_REFUSED = "DrainRefused", Kind.REFUSED, "move the named pods yourself, or allow it in the drain settings", "The drain settings do not allow to evict some of the pods, so it did not begin."
    DRAIN_CANCELED = "DrainCanceled", Kind.REFUSED, "the node was uncordoned during the drain; apply the config again when it may continue", "The node was uncordoned while it was drained, which ends the drain."
    NODE_LEAVING = "NodeLeaving", Kind.REFUSED, "the node, or its machine, is being deleted; stop the deletion to keep it", "The Node or its Machine is being deleted, so it is not updated."
    OUT_OF_SERVICE = "OutOfService", Kind.REFUSED, "remove the taint node.kubernetes.io/out-of-service when the node is in service again", "The Node is marked as out of service, so it is not updated."
    UNDER_MAINTENANCE = "UnderMaintenance", Kind.REFUSED, "wait for the end of the named maintenance; kubectl get nodemaintenance -A", "Another controller has this node under maintenance."
    MACHINE_CONFIG_OPERATOR = "MachineConfigOperator", Kind.REFUSED, "wait until its daemon is done; two agents must not manage one node", "The machine-config-daemon works on this node."
    NODE_UNKNOWN = "NodeUnknown", Kind.REFUSED, "wait until the kubelet has registered the node, or correct the setting with its name", "The cluster has no Node of this name."
    NODE_NOT_READY = "NodeNotReady", Kind.FAULT, "kubectl describe node and journalctl -u kubelet show why pods cannot run on the node", "The Node did not become ready in time after the update."
    CLUSTER_DECIDES = "ClusterDecides", Kind.REFUSED, "change the Node's desiredConfig, or ask again for it: nodeagent.org/retry=NAME on the Node", "The cluster decides which config this host has, so a command cannot."
    CORDONED = "Cordoned", Kind.REFUSED, "find out why (kubectl describe node); kubectl uncordon when it may continue", "Another client cordoned the node, so it is not disrupted."

    # etcd on this host
    ETCD_UNREACHABLE = "EtcdUnreachable", Kind.UNREACHABLE, "nodeagent etcd status as root; crictl ps --name etcd; the JSON gateway must be on", "The etcd of this host does not answer, so it is not known whether its quorum is safe."
    ETCD_CREDENTIALS = "EtcdCredentials", Kind.FAULT, "run the command as root; check the certificates in etcd's flags, or give others", "The certificates for etcd are missing, or etcd does not accept them."
    ETCD_QUORUM_AT_RISK = "EtcdQuorumAtRisk", Kind.REFUSED, "restore the named members first (etcdctl endpoint health --cluster)", "Other members are down, so etcd would lose its quorum without this host."
    ETCD_NOT_REDUNDANT = "EtcdNotRedundant", Kind.REFUSED, "add members (three tolerate the loss of one), or allow the disruption of a single member: docs/usage/etcd.md", "etcd has too few members to go on without this host."
    ETCD_LEARNER = "EtcdLearner", Kind.REFUSED, "wait until the learner is promoted, or remove it (etcdctl member list)", "A member is a learner, which has no vote yet."
    ETCD_UNSTARTED = "EtcdUnstarted", Kind.REFUSED, "start the member that was added, or remove it (etcdctl member list)", "A member was added and has never started, and counts for the quorum."
    ETCD_ALARM = "EtcdAlarm", Kind.REFUSED, "etcdctl alarm list; NOSPACE: compact, defragment, alarm disarm; CORRUPT: replace that member", "etcd has raised an alarm."
    ETCD_NO_LEADER = "EtcdNoLeader", Kind.REFUSED, "an election is in progress; if it does not end, check the network between the members", "The members of etcd have no leader at the moment."
    ETCD_NOT_MEMBER = "EtcdNotMember", Kind.REFUSED, "it was removed: replace it, or remove its manifest and its data directory", "etcd is on this host, and the cluster does not have it as a member."
    ETCD_DATA_LOST = "EtcdDataLost", Kind.REFUSED, "nodeagent etcd replace removes this member and adds it again with a new id; do not start it as it is", "The data of the member are not those that it had last, so it must not start as the same member."
    ETCD_LEARNER_BEHIND = "EtcdLearnerBehind", Kind.RETRY, "wait: it is promoted when it is at most 1000 entries behind", "The new member has not caught up with the leader yet."
    ETCD_VERSION = "EtcdVersion", Kind.REFUSED, "install the release that the members run, or the next minor one", "The release of etcd on this host does not fit those of the members."
    ETCD_REJECTED = "EtcdRejected", Kind.RETRY, "the agent retries; the message has the answer of etcd", "etcd answered a request with an error."
    ETCD_SNAPSHOT_INVALID = "EtcdSnapshotInvalid", Kind.RETRY, "take it again; if that fails, take it from another member (--endpoint)", "The snapshot is cut off or its checksum is wrong, so it was not kept."

    # Static pods of the kubelet
    STATIC_POD_OWNED = "StaticPodOwned", Kind.UNRECONCILABLE, "change it with its operator (oc edit etcd cluster), and take the file out of the config", "An operator of the cluster writes this static pod, and would undo the change."
    STATIC_POD_DUPLICATE = "StaticPodDuplicate", Kind.REFUSED, "move backups out of the directory of manifests: the kubelet reads every visible file", "Two manifests of static pods have the same name and namespace."
    STATIC_POD_IMAGE = "StaticPodImage", Kind.FAULT, "pull the image with crictl pull, or correct its name; nothing was changed", "The image of the static pod cannot be pulled."
    STATIC_POD_STUCK = "StaticPodStuck", Kind.FAULT, "the previous manifest is back; check the kubelet (journalctl -u kubelet) and crictl pods", "The kubelet did not stop the old pod."
    STATIC_POD_NOT_STARTED = "StaticPodNotStarted", Kind.FAULT, "check the log of the kubelet and the containers (crictl ps -a, crictl logs)", "The kubelet did not start the new pod."
    STATIC_POD_UNHEALTHY = "StaticPodUnhealthy", Kind.FAULT, "check the containers (crictl logs) and, for etcd, nodeagent etcd status", "The new pod runs and does not become ready."

    # Delays and slots
    REBOOT_REQUIRED = "RebootRequired", Kind.REFUSED, "nodeagent reboot continues the update and reboots this host; nodeagent cancel ends it", "The update is done but for its reboot, which an operator held back."
    SLOT_HELD = "SlotHeld", Kind.REFUSED, "wait for the hosts that have the slots; free the slot of a host that is gone permanently", "As many hosts as may be disrupted at once are being disrupted, so this one waits."
    SLOT_LOST = "SlotLost", Kind.REFUSED, "the slot of this node was freed (kubectl get lease -n nodeagent); apply the config again", "The slot of this host was taken away during the update."

    # The agent
    SWEEP_INCOMPLETE = "SweepIncomplete", Kind.FAULT, "remove the named files; they are harmless, and no update waits for that", "Files that an ended update left could not be removed."
    SETTINGS_INVALID = "SettingsInvalid", Kind.INPUT, "nodeagent settings check shows file and line", "The settings have a mistake, so the last good ones are used."
    RESTART_NEEDED = "RestartNeeded", Kind.INPUT, "systemctl restart nodeagent: this setting is only read at the start", "A setting changed that a running daemon cannot change."
    USAGE = "Usage", Kind.INPUT, "nodeagent --help, or --help after the command", "The words of the command line are not those of a command."
    TRY_AGAIN = "TryAgain", Kind.RETRY, "the agent retries", "Something was in the way for a moment."
    ILLEGAL_TRANSITION = "IllegalTransition", Kind.FAULT, "a bug: keep the journal (journalctl -u nodeagent -b) and report it", "The update would have taken a step that the course does not have."
    AGENT_FAILED = "AgentFailed", Kind.FAULT, "a bug: keep the journal (journalctl -u nodeagent -b) and report it", "The update ended by an unexpected error of the agent."
    INTERNAL_ERROR = "InternalError", Kind.FAULT, "a bug: run it again with NODEAGENT_TRACEBACK=1 and report the output", "The command ended by an unexpected error."
    # fmt: on


def known_reasons() -> Sequence[AnyReason]:
    """Return the reasons of the base and of the installed features."""
    return [*Reason, *(reason for door in doors() for reason in door.reasons or ())]


def reason_of(word: str) -> AnyReason:
    """Return the reason with this word. One of a newer agent is of the kind ``FAULT``."""
    reason = Reason(word)
    if reason in list(Reason):
        return reason
    return next((known for known in known_reasons() if known == word), reason)


def decode_reason(kind: type, value: object) -> object:
    """The ``dec_hook`` of msgspec, for objects that have a reason."""
    if kind is not AnyReason or not isinstance(value, str):
        raise ValueError(f"{kind.__name__} cannot be read")
    return reason_of(value)


def _is_known(word: str) -> bool:
    # The reasons of features are imported only if the base does not have this one.
    return word in list(Reason) or (word != "" and word in known_reasons())


def hint(reason: str, unit: str = "") -> str:
    """Return what to do about ``reason``; "" only for an empty reason. ``unit`` is the one that it is about."""
    text = reason_of(reason).hint if reason else ""
    return text.replace(" of the unit", f" {unit}") if unit else text


def documentation(reason: str) -> str:
    """Return the address of the section about ``reason``; "" for an unknown reason."""
    return f"{DOCUMENTATION}/reference/reasons.md#{reason.lower()}" if _is_known(reason) else ""
