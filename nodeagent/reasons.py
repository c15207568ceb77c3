"""The reasons: stable words that say why something failed, was refused or has to wait.

A reason is part of the contract: scripts match it in `nodeagent status --json`, in errors, in the journal
(NODEAGENT_REASON), in metrics and in the names of D-Bus errors. Its kind gives the exit status. ``core.hints`` has the
next step for each reason.
"""

from __future__ import annotations

from enum import Enum, StrEnum

__all__ = ["Kind", "Reason"]


class Kind(Enum):
    """The kinds of error: the exit status of the command line contract, and whether the agent retries."""

    INPUT = 2, False
    UNRECONCILABLE = 3, False
    REFUSED = 4, True
    UNREACHABLE = 5, True
    RETRY = 1, True
    FAULT = 1, False

    def __init__(self, exit_code: int, retryable: bool) -> None:
        self.exit_code = exit_code
        self.retryable = retryable


class Reason(StrEnum):
    """A reason, with its usual kind. The comments are the headings of the reference."""

    kind: Kind

    def __new__(cls, word: str, kind: Kind = Kind.FAULT) -> Reason:
        reason = str.__new__(cls, word)
        reason._value_ = word
        reason.kind = kind
        return reason

    @classmethod
    def _missing_(cls, value: object) -> Reason | None:
        """A word of a newer agent, from the bus or the store, is a reason of the kind ``FAULT``."""
        if not isinstance(value, str):
            return None
        reason = str.__new__(cls, value)
        reason._name_ = reason._value_ = value
        reason.kind = Kind.FAULT
        return reason

    # The desired config
    INVALID_INPUT = "InvalidInput", Kind.INPUT
    INVALID_CONTENT = "InvalidContent", Kind.INPUT
    NOT_MACHINE_CONFIG = "NotMachineConfig", Kind.INPUT
    CANNOT_READ = "CannotRead", Kind.INPUT
    NO_POLICY = "NoPolicy", Kind.INPUT
    UNRECONCILABLE = "Unreconcilable", Kind.UNRECONCILABLE
    IMAGE_INVALID = "ImageInvalid", Kind.INPUT
    IMAGE_NOT_PINNED = "ImageNotPinned", Kind.INPUT
    UNSAFE_CONFIG = "UnsafeConfig", Kind.INPUT
    CONFIG_UNREADABLE = "ConfigUnreadable", Kind.FAULT
    TOO_LARGE = "TooLarge", Kind.INPUT
    ADOPTION_FAILED = "AdoptionFailed", Kind.INPUT
    NO_CURRENT_CONFIG = "NoCurrentConfig", Kind.REFUSED
    BAD_PATH = "BadPath", Kind.INPUT
    BAD_HASH = "BadHash", Kind.INPUT
    UNKNOWN_USER = "UnknownUser", Kind.FAULT
    UNKNOWN_GROUP = "UnknownGroup", Kind.FAULT
    DRIFTED = "Drifted", Kind.REFUSED

    # Others in the way
    LEASE_HELD = "LeaseHeld", Kind.REFUSED
    LEASE_LOST = "LeaseLost", Kind.REFUSED
    LEASE_GIVEN_BACK = "LeaseGivenBack", Kind.REFUSED
    LEASE_EXPIRED = "LeaseExpired", Kind.REFUSED
    LEASE_CONTENDED = "LeaseContended", Kind.RETRY
    REBOOT_BLOCKED = "RebootBlocked", Kind.REFUSED
    POWER_OFF_BLOCKED = "PowerOffBlocked", Kind.REFUSED
    REBOOT_NOT_ALLOWED = "RebootNotAllowed", Kind.REFUSED
    NO_MAINTENANCE = "NoMaintenance", Kind.REFUSED
    MAINTENANCE_ENDING = "MaintenanceEnding", Kind.RETRY
    BAD_DURATION = "BadDuration", Kind.INPUT
    BAD_TEXT = "BadText", Kind.INPUT
    BAD_OPTION = "BadOption", Kind.INPUT
    NO_CLUSTER = "NoCluster", Kind.REFUSED
    POWER_OFF_FAILED = "PowerOffFailed", Kind.REFUSED
    NO_REASON = "NoReason", Kind.INPUT
    STILL_UNDER_WAY = "StillUnderWay", Kind.REFUSED
    REFUSED = "Refused", Kind.REFUSED
    CONFIG_REJECTED = "ConfigRejected", Kind.REFUSED
    ROLLED_BACK = "RolledBack", Kind.REFUSED
    UPDATE_UNDER_WAY = "UpdateUnderWay", Kind.REFUSED
    NO_PREVIOUS = "NoPrevious", Kind.REFUSED

    # The operating system
    NO_DEPLOYMENTS = "NoDeployments", Kind.UNRECONCILABLE
    NO_BOOTED_DEPLOYMENT = "NoBootedDeployment", Kind.FAULT
    BOOTC_HOST = "BootcHost", Kind.UNRECONCILABLE
    OTHER_DRIVER = "OtherDriver", Kind.REFUSED
    STAGED_BY_OTHER = "StagedByOther", Kind.REFUSED
    STAGED_LOST = "StagedLost", Kind.FAULT
    STAGE_FAILED = "StageFailed", Kind.RETRY
    STAGE_INCOMPLETE = "StageIncomplete", Kind.FAULT
    TRANSACTION_BUSY = "TransactionBusy", Kind.REFUSED
    TRANSACTION_CANCELLED = "TransactionCancelled", Kind.RETRY
    PACKAGE_UNAVAILABLE = "PackageUnavailable", Kind.FAULT
    TRANSACTION_STUCK = "TransactionStuck", Kind.RETRY
    TRANSACTION_LOST = "TransactionLost", Kind.RETRY
    DISCARD_FAILED = "DiscardFailed", Kind.FAULT
    LOCKED_SOFT_REBOOT = "LockedSoftReboot", Kind.REFUSED
    UNLOCK_FAILED = "UnlockFailed", Kind.FAULT
    COMMAND_FAILED = "CommandFailed", Kind.FAULT
    REGISTRY_UNREACHABLE = "RegistryUnreachable", Kind.RETRY
    IMAGE_BROKEN = "ImageBroken", Kind.FAULT
    NO_BOOT_ENTRY = "NoBootEntry", Kind.RETRY
    IMAGE_NOT_FOUND = "ImageNotFound", Kind.FAULT
    UNAUTHORIZED = "Unauthorized", Kind.FAULT
    SIGNATURE_INVALID = "SignatureInvalid", Kind.FAULT
    BOOT_FULL = "BootFull", Kind.REFUSED
    FINALIZE_FAILED = "FinalizeFailed", Kind.FAULT
    OLD_DEPLOYMENT_BOOTED = "OldDeploymentBooted", Kind.FAULT
    DEPLOYMENT_WRONG = "DeploymentWrong", Kind.FAULT
    NO_ROLLBACK = "NoRollback", Kind.FAULT
    ROLLBACK_ASKS_PASSWORD = "RollbackAsksPassword", Kind.FAULT
    ROLLBACK_FAILED = "RollbackFailed", Kind.FAULT
    MERGED = "Merged", Kind.FAULT

    # The I/O fence
    QUEUE_NOT_RESTORED = "QueueNotRestored", Kind.RETRY
    NO_PRESSURE = "NoPressure", Kind.RETRY
    NO_IO_CONTROL = "NoIoControl", Kind.FAULT
    LIMIT_NOT_HELD = "LimitNotHeld", Kind.RETRY
    LIMITS_NOT_RESET = "LimitsNotReset", Kind.RETRY
    NO_UDEV = "NoUdev", Kind.FAULT
    NO_DISK = "NoDisk", Kind.FAULT
    METRICS_INVALID = "MetricsInvalid", Kind.RETRY
    NO_METRICS = "NoMetrics", Kind.RETRY
    UPDATER_BUSY = "UpdaterBusy", Kind.RETRY
    NO_PRIORITIES = "NoPriorities", Kind.FAULT
    PRIORITY_NOT_RESTORED = "PriorityNotRestored", Kind.FAULT
    OTHER_DISK = "OtherDisk", Kind.FAULT
    NOTHING_TO_LIMIT = "NothingToLimit", Kind.FAULT
    FENCE_NOT_RECOVERED = "FenceNotRecovered", Kind.FAULT
    FENCE_FAILED = "FenceFailed", Kind.FAULT
    NO_HOTPLUG = "NoHotplug", Kind.RETRY

    # How an update goes on, or ended
    PLANNED = "Planned", Kind.FAULT
    REVERTING = "Reverting", Kind.FAULT
    REVERTED = "Reverted", Kind.FAULT
    REBOOT_BUDGET_SPENT = "RebootBudgetSpent", Kind.FAULT
    SUPERSEDED = "Superseded", Kind.FAULT
    WITHDRAWN = "Withdrawn", Kind.FAULT
    PHASE_LATE = "PhaseLate", Kind.FAULT

    # Services of this host
    ACTION_FAILED = "ActionFailed", Kind.FAULT
    ACTION_LATE = "ActionLate", Kind.FAULT
    JOB_TIMEOUT = "JobTimeout", Kind.FAULT
    JOB_CANCELED = "JobCanceled", Kind.FAULT
    CONDITION_NOT_MET = "ConditionNotMet", Kind.FAULT
    JOB_ASSERT = "JobAssert", Kind.FAULT
    JOB_DEPENDENCY = "JobDependency", Kind.FAULT
    JOB_SKIPPED = "JobSkipped", Kind.FAULT
    JOB_INVALID = "JobInvalid", Kind.FAULT
    JOB_NOT_APPLICABLE = "JobNotApplicable", Kind.FAULT
    JOB_CONFLICT = "JobConflict", Kind.FAULT
    UNIT_EXISTS = "UnitExists", Kind.FAULT
    UNIT_NOT_FOUND = "UnitNotFound", Kind.FAULT
    UNIT_MASKED = "UnitMasked", Kind.FAULT
    UNIT_INVALID = "UnitInvalid", Kind.FAULT
    SHUTTING_DOWN = "ShuttingDown", Kind.RETRY
    UNIT_UNHEALTHY = "UnitUnhealthy", Kind.FAULT
    VERIFY_FAILED = "VerifyFailed", Kind.FAULT
    VERIFY_LATE = "VerifyLate", Kind.FAULT
    JOB_FAILED = "JobFailed", Kind.FAULT
    REBOOT_FAILED = "RebootFailed", Kind.FAULT
    OPERATION_IN_PROGRESS = "OperationInProgress", Kind.RETRY
    REVERT_FAILED = "RevertFailed", Kind.FAULT

    # Files and disks
    NO_SPACE = "NoSpace", Kind.RETRY
    QUOTA_EXCEEDED = "QuotaExceeded", Kind.FAULT
    READ_ONLY = "ReadOnly", Kind.FAULT
    DISK_FAULT = "DiskFault", Kind.FAULT
    PERMISSION_DENIED = "PermissionDenied", Kind.FAULT
    IMMUTABLE = "Immutable", Kind.FAULT
    NOT_A_FILE = "NotAFile", Kind.FAULT
    NOT_A_DIRECTORY = "NotADirectory", Kind.FAULT
    PATH_BLOCKED = "PathBlocked", Kind.REFUSED
    PATH_CONTESTED = "PathContested", Kind.FAULT
    REVERT_TOO_LARGE = "RevertTooLarge", Kind.REFUSED
    NAME_TOO_LONG = "NameTooLong", Kind.FAULT
    LINK_REFUSED = "LinkRefused", Kind.FAULT
    PATH_CHANGED = "PathChanged", Kind.RETRY
    BUSY = "Busy", Kind.RETRY
    OUT_OF_MEMORY = "OutOfMemory", Kind.RETRY
    OUT_OF_HANDLES = "OutOfHandles", Kind.RETRY
    FILE_TOO_LARGE = "FileTooLarge", Kind.FAULT
    HOST_FAULT = "HostFault", Kind.FAULT

    # Accounts
    PASSWORD_NOT_SET = "PasswordNotSet", Kind.FAULT
    TOOL_MISSING = "ToolMissing", Kind.FAULT
    TOOL_TIMED_OUT = "ToolTimedOut", Kind.RETRY

    # The store
    STORE_CORRUPT = "StoreCorrupt", Kind.FAULT
    RECORD_TOO_NEW = "RecordTooNew", Kind.FAULT
    RECORD_UNREADABLE = "RecordUnreadable", Kind.FAULT
    STORED_CONFIG_INVALID = "StoredConfigInvalid", Kind.INPUT
    STORE_TOO_NEW = "StoreTooNew", Kind.FAULT
    STORE_BUSY = "StoreBusy", Kind.RETRY
    ALREADY_RUNNING = "AlreadyRunning", Kind.FAULT
    STORE_NEEDS_RECOVERY = "StoreNeedsRecovery", Kind.RETRY
    STORE_FAULT = "StoreFault", Kind.FAULT
    STORE_CLOSED = "StoreClosed", Kind.FAULT
    FOREIGN_STORE = "ForeignStore", Kind.FAULT
    NO_STORE = "NoStore", Kind.FAULT

    # The bus and the daemon
    UNREACHABLE = "Unreachable", Kind.UNREACHABLE
    SERVICE_UNKNOWN = "ServiceUnknown", Kind.UNREACHABLE
    SERVICE_UNAVAILABLE = "ServiceUnavailable", Kind.RETRY
    BUS_UNREACHABLE = "BusUnreachable", Kind.UNREACHABLE
    BUS_CONNECTION_LOST = "BusConnectionLost", Kind.FAULT
    BUS_TIMEOUT = "BusTimeout", Kind.RETRY
    BUS_REFUSED = "BusRefused", Kind.REFUSED
    BUS_CALL_FAILED = "BusCallFailed", Kind.FAULT
    CALL_TOO_LARGE = "CallTooLarge", Kind.REFUSED
    LIMITS_EXCEEDED = "LimitsExceeded", Kind.RETRY
    NO_MEMORY = "NoMemory", Kind.RETRY
    UNKNOWN_METHOD = "UnknownMethod", Kind.FAULT
    UNKNOWN_OBJECT = "UnknownObject", Kind.FAULT
    UNKNOWN_PROPERTY = "UnknownProperty", Kind.FAULT
    INVALID_ARGS = "InvalidArgs", Kind.FAULT
    NOT_SUPPORTED = "NotSupported", Kind.FAULT
    BUS_ADDRESS_INVALID = "BusAddressInvalid", Kind.FAULT
    SIGNALS_LOST = "SignalsLost", Kind.RETRY
    NO_REPLY = "NoReply", Kind.RETRY
    ACCESS_DENIED = "AccessDenied", Kind.REFUSED
    NOT_AUTHORIZED = "NotAuthorized", Kind.REFUSED
    AUTHORIZATION_REQUIRED = "AuthorizationRequired", Kind.REFUSED
    UNEXPECTED_REPLY = "UnexpectedReply", Kind.FAULT

    # The cluster
    CLIENT_MISSING = "ClientMissing", Kind.FAULT
    KUBECONFIG_INVALID = "KubeconfigInvalid", Kind.INPUT
    KUBE_UNREACHABLE = "KubeUnreachable", Kind.UNREACHABLE
    KUBE_UNAUTHORIZED = "KubeUnauthorized", Kind.FAULT
    KUBE_FORBIDDEN = "KubeForbidden", Kind.FAULT
    KUBE_SERVER_FAULT = "KubeServerFault", Kind.RETRY
    KUBE_THROTTLED = "KubeThrottled", Kind.RETRY
    KUBE_NOT_FOUND = "KubeNotFound", Kind.FAULT
    KUBE_EXPIRED = "KubeExpired", Kind.FAULT
    KUBE_CONFLICT = "KubeConflict", Kind.RETRY
    KUBE_ALREADY_EXISTS = "KubeAlreadyExists", Kind.RETRY
    KUBE_REJECTED = "KubeRejected", Kind.FAULT
    KUBE_NO_DATE = "KubeNoDate", Kind.RETRY
    LEASE_NAMESPACE_MISSING = "LeaseNamespaceMissing", Kind.FAULT
    NO_MACHINE_ID = "NoMachineId", Kind.FAULT
    NODE_CONTENDED = "NodeContended", Kind.RETRY
    DRAIN_TIMED_OUT = "DrainTimedOut", Kind.REFUSED
    DRAIN_REFUSED = "DrainRefused", Kind.REFUSED
    DRAIN_CANCELED = "DrainCanceled", Kind.REFUSED
    NODE_LEAVING = "NodeLeaving", Kind.REFUSED
    OUT_OF_SERVICE = "OutOfService", Kind.REFUSED
    UNDER_MAINTENANCE = "UnderMaintenance", Kind.REFUSED
    MACHINE_CONFIG_OPERATOR = "MachineConfigOperator", Kind.REFUSED
    MACHINE_CONTENDED = "MachineContended", Kind.RETRY
    NODE_UNKNOWN = "NodeUnknown", Kind.REFUSED
    CONFIG_NOT_FOUND = "ConfigNotFound", Kind.REFUSED
    CONFIG_NAME_INVALID = "ConfigNameInvalid", Kind.INPUT
    CLUSTER_DECIDES = "ClusterDecides", Kind.REFUSED
    IMAGE_LAYERED = "ImageLayered", Kind.UNRECONCILABLE
    NO_DESIRED_CONFIG = "NoDesiredConfig", Kind.FAULT
    CORDONED = "Cordoned", Kind.REFUSED
    NO_FLEET = "NoFleet", Kind.REFUSED

    # etcd on this host
    ETCD_UNREACHABLE = "EtcdUnreachable", Kind.UNREACHABLE
    ETCD_CREDENTIALS = "EtcdCredentials", Kind.FAULT
    ETCD_QUORUM_AT_RISK = "EtcdQuorumAtRisk", Kind.REFUSED
    ETCD_NOT_REDUNDANT = "EtcdNotRedundant", Kind.REFUSED
    ETCD_LEARNER = "EtcdLearner", Kind.REFUSED
    ETCD_UNSTARTED = "EtcdUnstarted", Kind.REFUSED
    ETCD_ALARM = "EtcdAlarm", Kind.REFUSED
    ETCD_NO_LEADER = "EtcdNoLeader", Kind.REFUSED
    ETCD_LEADER_STAYS = "EtcdLeaderStays", Kind.REFUSED
    ETCD_NOT_MEMBER = "EtcdNotMember", Kind.FAULT

    # Windows and slots
    TIME_ZONE_UNKNOWN = "TimeZoneUnknown", Kind.INPUT
    WINDOW_CLOSED = "WindowClosed", Kind.REFUSED
    SLOT_HELD = "SlotHeld", Kind.REFUSED
    SLOT_LOST = "SlotLost", Kind.REFUSED
    SLOT_CONTENDED = "SlotContended", Kind.RETRY
    FLEET_LOCK_UNREACHABLE = "FleetLockUnreachable", Kind.UNREACHABLE
    FLEET_LOCK_REJECTED = "FleetLockRejected", Kind.FAULT
    FLEET_LOCK_INVALID = "FleetLockInvalid", Kind.INPUT

    # The agent
    SWEEP_INCOMPLETE = "SweepIncomplete", Kind.FAULT
    SETTINGS_INVALID = "SettingsInvalid", Kind.INPUT
    RESTART_NEEDED = "RestartNeeded", Kind.INPUT
    USAGE = "Usage", Kind.INPUT
    TRY_AGAIN = "TryAgain", Kind.RETRY
    ILLEGAL_TRANSITION = "IllegalTransition", Kind.FAULT
    AGENT_FAILED = "AgentFailed", Kind.FAULT
    INTERNAL_ERROR = "InternalError", Kind.FAULT
