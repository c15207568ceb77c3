# SPDX-License-Identifier: Apache-2.0
"""The reasons: stable words that say why something failed, was refused or has to wait.

A reason is part of the contract: scripts match it in `nodeagent status --json`, in errors, in the journal
(NODEAGENT_REASON), in metrics and in the names of D-Bus errors. Its kind gives the exit status. Its hint is the next
step for an admin who has not read the manual: in ``status``, journal (NODEAGENT_HINT) and docs/reference/reasons.md.
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
    INVALID_INPUT = "InvalidInput", Kind.INPUT, "correct the desired config at the named paths; the host is unchanged"
    INVALID_CONTENT = "InvalidContent", Kind.INPUT, "correct the content of the named files; the host is unchanged"
    NOT_MACHINE_CONFIG = "NotMachineConfig", Kind.INPUT, "convert the file to a MachineConfig as the message describes; the host is unchanged"
    CANNOT_READ = "CannotRead", Kind.INPUT, "check the name and the permissions of the file (ls -l)"
    CANNOT_WRITE = "CannotWrite", Kind.INPUT, "name a file in a directory that you can write, and no link; - is standard output"
    POLICY_INVALID = "PolicyInvalid", Kind.INPUT, "correct the named entry of the policy (nodeagent settings check, nodeagent explain); the host is unchanged"
    UNIT_MISSING = "UnitMissing", Kind.INPUT, "correct the name in the config, or install what brings the unit; the entry has no effect until then"
    NO_POLICY = "NoPolicy", Kind.INPUT, "create the file that the setting policy names, or correct the setting"
    UNRECONCILABLE = "Unreconcilable", Kind.UNRECONCILABLE, "remove this change from the config, or reinstall the host with it"
    IMAGE_INVALID = "ImageInvalid", Kind.INPUT, "correct osImageURL: NAME@sha256:DIGEST, or ostree://REMOTE/BRANCH@CHECKSUM"
    IMAGE_NOT_PINNED = "ImageNotPinned", Kind.INPUT, "put the digest into the reference (skopeo inspect shows it); the host is unchanged"
    NAME_UNREAD = "NameUnread", Kind.INPUT, "rename the named entry below /etc/nodeagent, or move it away; then: systemctl reload nodeagent"
    UNSAFE_CONFIG = "UnsafeConfig", Kind.INPUT, "make the desired config a regular file that only root can write"
    CONFIG_UNREADABLE = "ConfigUnreadable", Kind.FAULT, "check the desired config with ls -l and its disk with dmesg"
    TOO_LARGE = "TooLarge", Kind.INPUT, "split the desired config, or check that it is the right file"
    NO_CURRENT_CONFIG = "NoCurrentConfig", Kind.REFUSED, "apply a config first: nodeagent apply FILE"
    UNKNOWN_CONFIG = "UnknownConfig", Kind.INPUT, "use the name of a config in nodeagent history; the current, the previous and the last two are kept"
    BAD_PATH = "BadPath", Kind.INPUT, "use absolute paths without . and .. in the config"
    BAD_HASH = "BadHash", Kind.INPUT, "create a hash with mkpasswd --method=yescrypt and put it into the config"
    UNKNOWN_USER = "UnknownUser", Kind.FAULT, "create the user, or remove the entry from the config"
    UNKNOWN_GROUP = "UnknownGroup", Kind.FAULT, "create the group, or remove the entry from the config"
    DRIFTED = "Drifted", Kind.REFUSED, "nodeagent verify shows what differs; undo it, put it into the config, or let on_drift: repair overwrite it"

    # Others in the way
    LEASE_HELD = "LeaseHeld", Kind.REFUSED, "wait, or ask the holder (nodeagent lease show); nodeagent maintenance stop ends a maintenance"
    LEASE_LOST = "LeaseLost", Kind.REFUSED, "nodeagent lease show names the new holder; apply the config again to continue"
    LEASE_GIVEN_BACK = "LeaseGivenBack", Kind.REFUSED, "if nothing was written, the update starts again; otherwise check the host and apply again"
    LEASE_EXPIRED = "LeaseExpired", Kind.REFUSED, "the API server was away for too long; the agent takes the lease again when it answers"
    REBOOT_BLOCKED = "RebootBlocked", Kind.REFUSED, "end the program that systemd-inhibit --list shows, wait, or take the update back with nodeagent cancel"
    USERS_WARNED = "UsersWarned", Kind.FAULT, "nothing: the host goes down at that time; reboot.warn_users sets how long users are warned"
    POWER_OFF_BLOCKED = "PowerOffBlocked", Kind.REFUSED, "end the program (systemd-inhibit --list) and start again, or set reboot.inhibitor_override"
    REBOOT_NOT_ALLOWED = "RebootNotAllowed", Kind.REFUSED, "set reboot.allow: true, or remove the change from the config"
    DISRUPTION_EXCEEDED = "DisruptionExceeded", Kind.REFUSED, "split the config, extend the policy, or raise --max-disruption"
    BAD_OPTION = "BadOption", Kind.INPUT, "update the daemon (nodeagent version shows both versions), or omit the option"
    STILL_UNDER_WAY = "StillUnderWay", Kind.REFUSED, "nodeagent status --watch follows the update, also after the reboot"
    REFUSED = "Refused", Kind.REFUSED, "see the message; it may be allowed later"
    REMOVES_MOST = "RemovesMost", Kind.REFUSED, "name the complete config, or remove half at a time; without a cluster: nodeagent apply --remove NUMBER FILE"
    LOCKOUT = "Lockout", Kind.UNRECONCILABLE, "give core an SSH key or a password hash; without a cluster: nodeagent apply --allow-lockout FILE"
    CONFIG_REJECTED = "ConfigRejected", Kind.REFUSED, "correct it, or try it again: nodeagent apply FILE; in a cluster: nodeagent.org/retry=NAME on the Node"
    ROLLED_BACK = "RolledBack", Kind.REFUSED, "run nodeagent apply FILE to retry it, or replace it with another config"
    UPDATE_UNDER_WAY = "UpdateUnderWay", Kind.REFUSED, "wait until the update has ended (nodeagent status --watch), then retry"
    NO_SUCH_UPDATE = "NoSuchUpdate", Kind.INPUT, "nodeagent history shows the ids of the updates; the beginning of one is enough"
    NO_PREVIOUS = "NoPrevious", Kind.REFUSED, "apply the config you want: nodeagent apply FILE"
    CHECKER_LATE = "CheckerLate", Kind.REFUSED, "find out why the program waits with the named file (an Include of a pipe, a busy host); the agent retries"

    # The operating system
    NO_DEPLOYMENTS = "NoDeployments", Kind.UNRECONCILABLE, "remove the change of the operating system: this host is not image-based"
    NO_BOOTED_DEPLOYMENT = "NoBootedDeployment", Kind.FAULT, "ostree admin status shows the deployments; boot one of them"
    OTHER_DRIVER = "OtherDriver", Kind.REFUSED, "mask the other updater (systemctl mask --now zincati), or remove the OS from the config"
    STAGED_BY_OTHER = "StagedByOther", Kind.REFUSED, "ostree admin status shows it; reboot to keep it, or run ostree admin undeploy 0 to drop it"
    STAGED_UNLOCKED = "StagedUnlocked", Kind.REFUSED, "stop what unlocks it (another updater or its timer, ostree admin lock-finalization); do not reboot until then"
    STAGED_LOST = "StagedLost", Kind.REFUSED, "it was removed, or the host kept going down while it was staged: journalctl -b -1, apply again"
    STAGE_FAILED = "StageFailed", Kind.RETRY, "the message has the error, and the journal of that time the details; the agent retries"
    STAGE_INCOMPLETE = "StageIncomplete", Kind.FAULT, "something else than requested was staged (ostree admin status, the journal of that time); report it"
    DISCARD_FAILED = "DiscardFailed", Kind.FAULT, "run ostree admin undeploy 0 to see the error, then apply the config again"
    LOCKED_SOFT_REBOOT = "LockedSoftReboot", Kind.REFUSED, "ostree admin prepare-soft-reboot --reset; until then do not run systemctl reboot"
    SOFT_REBOOT_FAILED = "SoftRebootFailed", Kind.FAULT, "nothing: a full reboot follows; systemctl list-jobs and journalctl -b show what held the soft one up"
    UNLOCK_FAILED = "UnlockFailed", Kind.FAULT, "ostree admin status and journalctl -u ostree-finalize-staged show why; then apply again"
    COMMAND_FAILED = "CommandFailed", Kind.FAULT, "run the named command; its message shows the error"
    COMMAND_TIMED_OUT = "CommandTimedOut", Kind.FAULT, "journalctl -u of the named unit shows where the command hangs; then apply the config again"
    REGISTRY_UNREACHABLE = "RegistryUnreachable", Kind.RETRY, "check network, proxy and the registry from this host; the agent retries"
    IMAGE_BROKEN = "ImageBroken", Kind.FAULT, "that image is no OS that boots here (the message says why); correct it, then osImageURL"
    NO_BOOT_ENTRY = "NoBootEntry", Kind.RETRY, "ls /boot/loader/entries and findmnt /boot: mount it, then ostree admin status must work"
    IMAGE_NOT_FOUND = "ImageNotFound", Kind.FAULT, "the registry has no such image (or digest): correct osImageURL, or push it"
    UNAUTHORIZED = "Unauthorized", Kind.FAULT, "correct the pull secret (/var/lib/kubelet/config.json) in the config; skopeo login tests it"
    SIGNATURE_INVALID = "SignatureInvalid", Kind.FAULT, "sign the image with a key that /etc/containers/policy.json knows, or correct that"
    BOOT_FULL = "BootFull", Kind.REFUSED, "free space in /boot (ls -l /boot; ostree admin status shows rollback and pinned deployments)"
    FINALIZE_FAILED = "FinalizeFailed", Kind.FAULT, "journalctl -b -1 -u ostree-finalize-staged; often /boot is full; then apply again"
    OLD_DEPLOYMENT_BOOTED = "OldDeploymentBooted", Kind.FAULT, "it was chosen in the boot menu; apply the config again"
    BOOT_FAILED = "BootFailed", Kind.FAULT, "see how far it came on the console, or in journalctl --list-boots; then correct the image"
    DEPLOYMENT_WRONG = "DeploymentWrong", Kind.FAULT, "ostree admin status and ls /boot/loader/entries show what the new deployment lacks; report it"
    NO_ROLLBACK = "NoRollback", Kind.FAULT, "there is no other deployment; apply the config you want"
    ROLLBACK_ASKS_PASSWORD = "RollbackAsksPassword", Kind.FAULT, "ostree admin deploy shows why; or boot the old deployment with the password of GRUB"
    ROLLBACK_FAILED = "RollbackFailed", Kind.FAULT, "boot the old deployment (ostree admin status), then apply the config you want"
    MERGED = "Merged", Kind.FAULT, "no action: files that the OS update replaced are written again, and the host is rebooted"

    # The course and the end of an update
    PLANNED = "Planned", Kind.FAULT, "no action: the plan has a reboot; the agent verifies the host after it"
    REVERTING = "Reverting", Kind.FAULT, "no action: the host reboots to return to the previous config; then see nodeagent history"
    REVERTED = "Reverted", Kind.FAULT, "no hurry: the previous config is in force again; nodeagent history shows why; correct the config and apply it"
    REBOOT_BUDGET_SPENT = "RebootBudgetSpent", Kind.FAULT, "find out why actions keep failing (nodeagent history), or reboot the host manually"
    SUPERSEDED = "Superseded", Kind.FAULT, "nothing: another config became the desired one before anything was written"
    WITHDRAWN = "Withdrawn", Kind.FAULT, "nothing: the update was taken back before anything was written; the host runs its current config"
    CANCELLED = "Cancelled", Kind.REFUSED, "none: cancelled; to apply it: nodeagent apply FILE; in a cluster: nodeagent.org/retry=NAME on the Node"
    CANCEL_TOO_LATE = "CancelTooLate", Kind.REFUSED, "wait for the end (nodeagent status --watch), then run nodeagent rollback"
    NO_UPDATE = "NoUpdate", Kind.REFUSED, "none: there is nothing to cancel; nodeagent history lists past updates"
    PHASE_LATE = "PhaseLate", Kind.FAULT, "nodeagent status names the step that hangs; check it, then apply the config again"

    # Services of this host
    ACTION_FAILED = "ActionFailed", Kind.FAULT, "systemctl status and journalctl -u of the unit show why; correct the config and apply it"
    ACTION_LATE = "ActionLate", Kind.FAULT, "the unit needs longer than actions.timeout; see systemctl status, or raise the setting"
    RELOAD_REJECTED = "ReloadRejected", Kind.FAULT, "correct the file that the message names; the program still has its previous configuration"
    JOB_TIMEOUT = "JobTimeout", Kind.FAULT, "journalctl -u of the unit shows where it hangs; raise its TimeoutStartSec= if it is slow"
    JOB_CANCELED = "JobCanceled", Kind.FAULT, "another client stopped the unit's job (journalctl -u of the unit); apply the config again"
    CONDITION_NOT_MET = "ConditionNotMet", Kind.FAULT, "none needed if the condition is intended; systemctl status of the unit shows it"
    JOB_ASSERT = "JobAssert", Kind.FAULT, "systemctl status of the unit shows which Assert setting is not met; correct that first"
    JOB_DEPENDENCY = "JobDependency", Kind.FAULT, "systemctl list-dependencies of the unit shows what did not start; correct that first"
    JOB_SKIPPED = "JobSkipped", Kind.FAULT, "the unit was not running when its job came; systemctl start it, then apply the config again"
    JOB_INVALID = "JobInvalid", Kind.FAULT, "the unit cannot be reloaded; use Restart instead of Reload in the policy"
    JOB_NOT_APPLICABLE = "JobNotApplicable", Kind.FAULT, "this unit refuses manual jobs; name the unit that starts it in the policy"
    JOB_CONFLICT = "JobConflict", Kind.FAULT, "systemctl list-jobs shows the other job; apply the config again when it has ended"
    UNIT_EXISTS = "UnitExists", Kind.FAULT, "another unit has this name; systemctl status shows it"
    UNIT_NOT_FOUND = "UnitNotFound", Kind.FAULT, "correct the unit's name in the config or the policy, or add the unit to the config"
    UNIT_MASKED = "UnitMasked", Kind.FAULT, "systemctl unmask it, or remove it from the config or the policy that names it"
    UNIT_INVALID = "UnitInvalid", Kind.FAULT, "systemd-analyze verify shows what is wrong with the unit"
    SHUTTING_DOWN = "ShuttingDown", Kind.RETRY, "no action: the host goes down; the agent continues after the boot"
    UNIT_UNHEALTHY = "UnitUnhealthy", Kind.FAULT, "journalctl -u of the unit shows why it does not stay up; correct the config and apply it"
    VERIFY_FAILED = "VerifyFailed", Kind.FAULT, "the message names what differs; another entry or program may have changed it; correct the config, apply it"
    VERIFY_LATE = "VerifyLate", Kind.FAULT, "journalctl -u of the unit shows what it waits for; raise verify.timeout if it is slow"
    JOB_FAILED = "JobFailed", Kind.FAULT, "systemctl status and journalctl -u of the unit show why; correct the config and apply it"
    REBOOT_FAILED = "RebootFailed", Kind.FAULT, "the host did not go down; systemctl list-jobs shows what hangs, then reboot it manually"
    OPERATION_IN_PROGRESS = "OperationInProgress", Kind.RETRY, "another shutdown is scheduled (shutdown --show); the agent retries"
    REVERT_FAILED = "RevertFailed", Kind.FAULT, "the host has parts of two configs; run nodeagent verify, free the disk, apply the good config"

    # Files and disks
    NO_SPACE = "NoSpace", Kind.FAULT, "free space (df -h /etc /var); the agent retries"
    QUOTA_EXCEEDED = "QuotaExceeded", Kind.FAULT, "quota -v shows whose quota is used up; raise it or free space"
    READ_ONLY = "ReadOnly", Kind.FAULT, "remount the file system for writing; dmesg shows why it is read-only"
    DISK_FAULT = "DiskFault", Kind.FAULT, "dmesg and smartctl show what is wrong with the disk"
    PERMISSION_DENIED = "PermissionDenied", Kind.FAULT, "check for chattr +i (lsattr), SELinux (ausearch -m avc) and the mode of the path"
    IMMUTABLE = "Immutable", Kind.FAULT, "check lsattr of the path and its directory; run chattr -i if it is not intended"
    NOT_A_FILE = "NotAFile", Kind.FAULT, "remove or rename what is at the path, then apply again"
    NOT_A_DIRECTORY = "NotADirectory", Kind.FAULT, "remove or rename the file that is in the way of the directory, then apply again"
    PATH_BLOCKED = "PathBlocked", Kind.REFUSED, "move away what is at the path, or use one that this host can write and keeps, such as below /etc or /var"
    PATH_CONTESTED = "PathContested", Kind.FAULT, "look at the path: its owner changed it or keeps root out; the rest of the config is applied"
    REVERT_TOO_LARGE = "RevertTooLarge", Kind.REFUSED, "move some of the large files away, or change them in several configs"
    NAME_TOO_LONG = "NameTooLong", Kind.FAULT, "use a shorter path in the config"
    LINK_REFUSED = "LinkRefused", Kind.FAULT, "replace the link on the way to the path by a directory, or use the real path in the config"
    PATH_CHANGED = "PathChanged", Kind.RETRY, "find out which program writes there at the same time (fatrace, auditctl)"
    BUSY = "Busy", Kind.RETRY, "lsof of the path shows which program uses it; the agent retries"
    OUT_OF_MEMORY = "OutOfMemory", Kind.RETRY, "free memory (systemd-cgtop -m); the agent retries"
    OUT_OF_HANDLES = "OutOfHandles", Kind.RETRY, "cat /proc/sys/fs/file-nr shows the number of open files; the agent retries"
    FILE_TOO_LARGE = "FileTooLarge", Kind.FAULT, "remove the file from the config, or move the one on the host away first"
    HOST_FAULT = "HostFault", Kind.FAULT, "journalctl -u nodeagent shows what the host answered"

    # Accounts
    PASSWORD_NOT_SET = "PasswordNotSet", Kind.FAULT, "run chpasswd manually; journalctl -t chpasswd shows PAM's error"
    TOOL_MISSING = "ToolMissing", Kind.FAULT, "install the named tool"
    TOOL_TIMED_OUT = "ToolTimedOut", Kind.RETRY, "find out what holds the lock on the accounts (lsof /etc/.pwd.lock)"

    # The store
    STORE_CORRUPT = "StoreCorrupt", Kind.FAULT, "nodeagent apply FILE replaces a damaged record; otherwise move the file away and report it"
    RECORD_TOO_NEW = "RecordTooNew", Kind.FAULT, "upgrade nodeagent again, which resumes the update; nodeagent apply FILE ends that update"
    RECORD_UNREADABLE = "RecordUnreadable", Kind.FAULT, "nodeagent apply FILE ends that update; what the disk has already is no change"
    STORED_CONFIG_INVALID = "StoredConfigInvalid", Kind.INPUT, "nothing: the next update replaces it; a rollback to that config is refused"
    STORE_TOO_NEW = "StoreTooNew", Kind.FAULT, "upgrade nodeagent again; this version does not touch a newer store"
    STORE_BUSY = "StoreBusy", Kind.RETRY, "another nodeagent runs (systemctl status nodeagent); stop one of them"
    ALREADY_RUNNING = "AlreadyRunning", Kind.FAULT, "another nodeagent runs (systemctl status nodeagent); stop one of them"
    STORE_NEEDS_RECOVERY = "StoreNeedsRecovery", Kind.RETRY, "start the daemon once: systemctl start nodeagent"
    STORE_FAULT = "StoreFault", Kind.FAULT, "journalctl -u nodeagent has SQLite's message; check the disk"
    STORE_CLOSED = "StoreClosed", Kind.FAULT, "restart nodeagent; if it happens again, report a bug"
    FOREIGN_STORE = "ForeignStore", Kind.FAULT, "make root the owner of the store, or move it away"
    NO_STORE = "NoStore", Kind.FAULT, "the agent never ran here: systemctl enable --now nodeagent"

    # The bus and the daemon
    UNREACHABLE = "Unreachable", Kind.UNREACHABLE, "systemctl status nodeagent, and journalctl -u nodeagent for the error"
    SERVICE_UNKNOWN = "ServiceUnknown", Kind.UNREACHABLE, "systemctl status of the service shows why it does not run; systemctl start nodeagent"
    PROGRAM_NOT_STARTED = "ProgramNotStarted", Kind.RETRY, "free processes, memory or open files (systemd-cgtop, ps -eLf); the agent continues when the program starts"
    SERVICE_UNAVAILABLE = "ServiceUnavailable", Kind.RETRY, "systemctl status of the named service; the agent continues when it answers"
    BUS_UNREACHABLE = "BusUnreachable", Kind.UNREACHABLE, "systemctl status dbus; the agent reconnects"
    BUS_CONNECTION_LOST = "BusConnectionLost", Kind.UNREACHABLE, "the bus was restarted; the agent reconnects"
    BUS_TIMEOUT = "BusTimeout", Kind.UNREACHABLE, "the named service hangs (systemctl status of it); the agent continues when it answers"
    BUS_REFUSED = "BusRefused", Kind.REFUSED, "run the command as root, and check the policy of the bus"
    BUS_CALL_FAILED = "BusCallFailed", Kind.FAULT, "journalctl of the named service shows the error"
    CALL_TOO_LARGE = "CallTooLarge", Kind.REFUSED, "run it as root (sudo), who may send 32 MiB; others may send a config of 2 MiB"
    LIMITS_EXCEEDED = "LimitsExceeded", Kind.UNREACHABLE, "too many calls at once; the agent retries"
    NO_MEMORY = "NoMemory", Kind.RETRY, "free memory (systemd-cgtop -m); the agent retries"
    UNKNOWN_METHOD = "UnknownMethod", Kind.FAULT, "the named service is too old or too new; check its version"
    UNKNOWN_OBJECT = "UnknownObject", Kind.FAULT, "the named service is too old or too new; check its version"
    UNKNOWN_PROPERTY = "UnknownProperty", Kind.FAULT, "the named service is too old or too new; check its version"
    INVALID_ARGS = "InvalidArgs", Kind.FAULT, "the named service does not accept the call; check its version"
    NOT_SUPPORTED = "NotSupported", Kind.FAULT, "the named service cannot do that on this host; see its journal"
    BUS_ADDRESS_INVALID = "BusAddressInvalid", Kind.FAULT, "check DBUS_SYSTEM_BUS_ADDRESS"
    SIGNALS_LOST = "SignalsLost", Kind.RETRY, "the host sends more signals than can be read; the agent retries"
    NO_REPLY = "NoReply", Kind.UNREACHABLE, "the named service was restarted during the call; the agent retries"
    ACCESS_DENIED = "AccessDenied", Kind.REFUSED, "run the command as root (sudo), or allow it with a polkit rule"
    NOT_AUTHORIZED = "NotAuthorized", Kind.REFUSED, "run the command as root (sudo), or allow it with a polkit rule"
    AUTHORIZATION_REQUIRED = "AuthorizationRequired", Kind.REFUSED, "run it as root (sudo), or on a terminal where polkit can prompt for a password"
    UNEXPECTED_REPLY = "UnexpectedReply", Kind.FAULT, "client and daemon do not match (nodeagent version); restart nodeagent"

    # The cluster
    CLIENT_MISSING = "ClientMissing", Kind.FAULT, "install it with pip install nodeagent[cluster]; the package contains it"
    KUBECONFIG_INVALID = "KubeconfigInvalid", Kind.INPUT, "check the named file with kubectl --kubeconfig FILE config view"
    KUBE_UNREACHABLE = "KubeUnreachable", Kind.UNREACHABLE, "kubectl --kubeconfig FILE get --raw /readyz from this host; the agent retries"
    KUBE_UNAUTHORIZED = "KubeUnauthorized", Kind.UNREACHABLE, "renew the agent's token or certificate; no restart is needed"
    KUBE_FORBIDDEN = "KubeForbidden", Kind.REFUSED, "grant the agent's role the named verb and resource"
    KUBE_SERVER_FAULT = "KubeServerFault", Kind.RETRY, "check the API server and its etcd (/readyz?verbose); the agent retries"
    KUBE_THROTTLED = "KubeThrottled", Kind.RETRY, "the API server is busy; the agent retries"
    KUBE_NOT_FOUND = "KubeNotFound", Kind.FAULT, "the named object is not in the cluster; check the name, or create it"
    KUBE_EXPIRED = "KubeExpired", Kind.FAULT, "no action: the agent reads the list again"
    KUBE_CONFLICT = "KubeConflict", Kind.RETRY, "no action: another client changed the object; the agent reads it again"
    KUBE_ALREADY_EXISTS = "KubeAlreadyExists", Kind.RETRY, "no action: another client created the object; the agent reads it"
    KUBE_REJECTED = "KubeRejected", Kind.FAULT, "the API server rejects the request; see the message, and check the versions of both"
    KUBE_NO_DATE = "KubeNoDate", Kind.RETRY, "a proxy removes the Date header from answers; bypass it, or let it pass the header"
    LEASE_NAMESPACE_MISSING = "LeaseNamespaceMissing", Kind.FAULT, "create the named namespace, with the role for the agent"
    NO_MACHINE_ID = "NoMachineId", Kind.FAULT, "systemd-machine-id-setup, then restart nodeagent; every host of a fleet needs its own id"
    DRAIN_TIMED_OUT = "DrainTimedOut", Kind.REFUSED, "the message names the remaining pods and why; drain.on_deadline sets what happens next"
    DRAIN_REFUSED = "DrainRefused", Kind.REFUSED, "move the named pods yourself, or allow it in the drain settings"
    DRAIN_CANCELED = "DrainCanceled", Kind.REFUSED, "the node was uncordoned during the drain; apply the config again when it may continue"
    NODE_LEAVING = "NodeLeaving", Kind.REFUSED, "the node, or its machine, is being deleted; stop the deletion to keep it"
    OUT_OF_SERVICE = "OutOfService", Kind.REFUSED, "remove the taint node.kubernetes.io/out-of-service when the node is in service again"
    UNDER_MAINTENANCE = "UnderMaintenance", Kind.REFUSED, "wait for the end of the named maintenance; kubectl get nodemaintenance -A"
    MACHINE_CONFIG_OPERATOR = "MachineConfigOperator", Kind.REFUSED, "wait until its daemon is done; two agents must not manage one node"
    NODE_UNKNOWN = "NodeUnknown", Kind.REFUSED, "wait until the kubelet has registered the node, or correct the setting with its name"
    NODE_NOT_READY = "NodeNotReady", Kind.FAULT, "kubectl describe node and journalctl -u kubelet show why pods cannot run on the node"
    CLUSTER_DECIDES = "ClusterDecides", Kind.REFUSED, "change the Node's desiredConfig, or ask again for it: nodeagent.org/retry=NAME on the Node"
    CORDONED = "Cordoned", Kind.REFUSED, "find out why (kubectl describe node); kubectl uncordon when it may continue"

    # etcd on this host
    ETCD_UNREACHABLE = "EtcdUnreachable", Kind.UNREACHABLE, "nodeagent etcd status as root; crictl ps --name etcd; the JSON gateway must be on"
    ETCD_CREDENTIALS = "EtcdCredentials", Kind.FAULT, "run the command as root; check the certificates in etcd's flags, or give others"
    ETCD_QUORUM_AT_RISK = "EtcdQuorumAtRisk", Kind.REFUSED, "restore the named members first (etcdctl endpoint health --cluster)"
    ETCD_NOT_REDUNDANT = "EtcdNotRedundant", Kind.REFUSED, "add members (three tolerate the loss of one), or allow the disruption of a single member: docs/usage/etcd.md"
    ETCD_LEARNER = "EtcdLearner", Kind.REFUSED, "wait until the learner is promoted, or remove it (etcdctl member list)"
    ETCD_UNSTARTED = "EtcdUnstarted", Kind.REFUSED, "start the member that was added, or remove it (etcdctl member list)"
    ETCD_ALARM = "EtcdAlarm", Kind.REFUSED, "etcdctl alarm list; NOSPACE: compact, defragment, alarm disarm; CORRUPT: replace that member"
    ETCD_NO_LEADER = "EtcdNoLeader", Kind.REFUSED, "an election is in progress; if it does not end, check the network between the members"
    ETCD_NOT_MEMBER = "EtcdNotMember", Kind.REFUSED, "it was removed: replace it, or remove its manifest and its data directory"
    ETCD_DATA_LOST = "EtcdDataLost", Kind.REFUSED, "nodeagent etcd replace removes this member and adds it again with a new id; do not start it as it is"
    ETCD_LEARNER_BEHIND = "EtcdLearnerBehind", Kind.RETRY, "wait: it is promoted when it is at most 1000 entries behind"
    ETCD_VERSION = "EtcdVersion", Kind.REFUSED, "install the release that the members run, or the next minor one"
    ETCD_REJECTED = "EtcdRejected", Kind.RETRY, "the agent retries; the message has the answer of etcd"
    ETCD_SNAPSHOT_INVALID = "EtcdSnapshotInvalid", Kind.RETRY, "take it again; if that fails, take it from another member (--endpoint)"

    # Static pods of the kubelet
    STATIC_POD_OWNED = "StaticPodOwned", Kind.UNRECONCILABLE, "change it with its operator (oc edit etcd cluster), and take the file out of the config"
    STATIC_POD_DUPLICATE = "StaticPodDuplicate", Kind.REFUSED, "move backups out of the directory of manifests: the kubelet reads every visible file"
    STATIC_POD_IMAGE = "StaticPodImage", Kind.FAULT, "pull the image with crictl pull, or correct its name; nothing was changed"
    STATIC_POD_STUCK = "StaticPodStuck", Kind.FAULT, "the previous manifest is back; check the kubelet (journalctl -u kubelet) and crictl pods"
    STATIC_POD_NOT_STARTED = "StaticPodNotStarted", Kind.FAULT, "check the log of the kubelet and the containers (crictl ps -a, crictl logs)"
    STATIC_POD_UNHEALTHY = "StaticPodUnhealthy", Kind.FAULT, "check the containers (crictl logs) and, for etcd, nodeagent etcd status"

    # Delays and slots
    REBOOT_REQUIRED = "RebootRequired", Kind.REFUSED, "nodeagent reboot continues the update and reboots this host; nodeagent cancel ends it"
    SLOT_HELD = "SlotHeld", Kind.REFUSED, "wait for the hosts that have the slots; free the slot of a host that is gone permanently"
    SLOT_LOST = "SlotLost", Kind.REFUSED, "the slot of this node was freed (kubectl get lease -n nodeagent); apply the config again"

    # The agent
    SWEEP_INCOMPLETE = "SweepIncomplete", Kind.FAULT, "remove the named files; they are harmless, and no update waits for that"
    SETTINGS_INVALID = "SettingsInvalid", Kind.INPUT, "nodeagent settings check shows file and line"
    RESTART_NEEDED = "RestartNeeded", Kind.INPUT, "systemctl restart nodeagent: this setting is only read at the start"
    USAGE = "Usage", Kind.INPUT, "nodeagent --help, or --help after the command"
    TRY_AGAIN = "TryAgain", Kind.RETRY, "the agent retries"
    ILLEGAL_TRANSITION = "IllegalTransition", Kind.FAULT, "a bug: keep the journal (journalctl -u nodeagent -b) and report it"
    AGENT_FAILED = "AgentFailed", Kind.FAULT, "a bug: keep the journal (journalctl -u nodeagent -b) and report it"
    INTERNAL_ERROR = "InternalError", Kind.FAULT, "a bug: run it again with NODEAGENT_TRACEBACK=1 and report the output"
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
