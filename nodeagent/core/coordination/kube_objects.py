# SPDX-License-Identifier: Apache-2.0
"""The objects of an API server as the agent reads them: the fields that are read, with the types of the API.

The adapter decodes every answer to one of these (``kube/decode.py``), so that no reader meets a missing key or another
type. They stay dictionaries, because merge patches and lists of conditions are made of what was read. Unknown fields
are dropped. Where a field may be missing it may also be null, as encoders in Go write it.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Required, TypedDict

from msgspec import Meta

# An empty text would address another object, for example the list instead of one of its items. No name is longer.
Name = Annotated[str, Meta(min_length=1, max_length=253)]
Texts = dict[str, str]


class OwnerReference(TypedDict, total=False):
    kind: Required[str]
    name: Required[str]
    uid: Required[str]
    controller: bool | None


class ObjectMeta(TypedDict, total=False):
    name: Required[Name]
    uid: Required[Name]
    resourceVersion: Required[Name]
    generation: int | None
    labels: Texts | None
    annotations: Texts | None
    ownerReferences: list[OwnerReference] | None
    finalizers: list[str] | None
    deletionTimestamp: str | None
    deletionGracePeriodSeconds: int | None


class NamespacedMeta(ObjectMeta):
    namespace: Required[Name]


class KubeObject(TypedDict):
    """An object of any kind of which only the metadata are read."""

    metadata: ObjectMeta


# The functional form, because of the name of its key.
ListMeta = TypedDict("ListMeta", {"continue": str | None}, total=False)


class KubeList(TypedDict, total=False):
    """An answer to a list, without the objects."""

    metadata: ListMeta | None


class Condition(TypedDict, total=False):
    type: Required[str]
    status: Required[str]
    reason: str | None
    message: str | None
    lastTransitionTime: str | None
    lastHeartbeatTime: str | None
    observedGeneration: int | None


# Nodes.


class Taint(TypedDict, total=False):
    key: Required[str]
    value: str | None
    effect: str | None


class NodeSpec(TypedDict, total=False):
    unschedulable: bool | None
    taints: list[Taint] | None


class NodeStatus(TypedDict, total=False):
    conditions: list[Condition] | None
    capacity: Texts | None
    allocatable: Texts | None


class Node(TypedDict, total=False):
    metadata: Required[ObjectMeta]
    spec: NodeSpec | None
    status: NodeStatus | None


class Manager(TypedDict, total=False):
    """The fields that a client has set, as nested keys."""

    fieldsV1: dict[str, Any] | None


class ManagedMeta(ObjectMeta, total=False):
    managedFields: list[Manager] | None


class ListedNode(TypedDict):
    """A Node of which only the metadata are listed."""

    metadata: ManagedMeta


# Pods.


class Volume(TypedDict, total=False):
    emptyDir: dict[str, Any] | None


class PodSpec(TypedDict, total=False):
    terminationGracePeriodSeconds: int | None
    volumes: list[Volume] | None


class PodStatus(TypedDict, total=False):
    phase: str | None


class Pod(TypedDict, total=False):
    metadata: Required[NamespacedMeta]
    spec: PodSpec | None
    status: PodStatus | None


# Leases.


class LeaseSpec(TypedDict, total=False):
    holderIdentity: str | None
    leaseDurationSeconds: int | None
    acquireTime: str | None
    renewTime: str | None
    leaseTransitions: int | None
    strategy: str | None


class LeaseObject(TypedDict, total=False):
    metadata: Required[ObjectMeta]
    spec: LeaseSpec | None


# Machines of the machine-api-operator, and maintenances of medik8s.


class LifecycleHook(TypedDict):
    name: str
    owner: str


class LifecycleHooks(TypedDict, total=False):
    preDrain: list[LifecycleHook] | None


class MachineSpec(TypedDict, total=False):
    lifecycleHooks: LifecycleHooks | None


class Machine(TypedDict, total=False):
    metadata: Required[NamespacedMeta]
    spec: MachineSpec | None


class MaintenanceSpec(TypedDict, total=False):
    nodeName: str | None
    reason: str | None


# Of medik8s (node-maintenance-operator).
MAINTENANCES: Final = "/apis/nodemaintenance.medik8s.io/v1beta1/nodemaintenances"


class NodeMaintenance(TypedDict, total=False):
    metadata: Required[ObjectMeta]
    spec: MaintenanceSpec | None


# Of the machine-config-operator.


class Reference(TypedDict, total=False):
    name: str | None


class Rule(TypedDict, total=False):
    key: str | None
    operator: str | None
    values: list[str] | None


class Selector(TypedDict, total=False):
    matchLabels: Texts | None
    matchExpressions: list[Rule] | None


class PoolSpec(TypedDict, total=False):
    paused: bool | None
    configuration: Reference | None
    nodeSelector: Selector | None


class PoolStatus(TypedDict, total=False):
    observedGeneration: int | None
    conditions: list[Condition] | None


class MachineConfigPool(TypedDict, total=False):
    metadata: Required[ObjectMeta]
    spec: PoolSpec | None
    status: PoolStatus | None


class OSConfigSpec(TypedDict, total=False):
    machineConfigPool: Reference | None


class OSConfigStatus(TypedDict, total=False):
    currentImagePullSpec: str | None


class MachineOSConfig(TypedDict, total=False):
    metadata: Required[ObjectMeta]
    spec: OSConfigSpec | None
    status: OSConfigStatus | None


class ConfigVersions(TypedDict, total=False):
    current: str | None
    desired: str | None


class MachineConfigNodeStatus(TypedDict, total=False):
    conditions: list[Condition] | None
    configVersion: ConfigVersions | None


class MachineConfigNode(TypedDict, total=False):
    metadata: Required[ObjectMeta]
    status: MachineConfigNodeStatus | None


# Certificates.


class RequestSpec(TypedDict, total=False):
    request: str | None
    signerName: str | None
    usages: list[str] | None
    expirationSeconds: int | None
    username: str | None
    groups: list[str] | None


class RequestStatus(TypedDict, total=False):
    conditions: list[Condition] | None
    certificate: str | None


class CertificateRequest(TypedDict, total=False):
    metadata: Required[ObjectMeta]
    spec: RequestSpec | None
    status: RequestStatus | None


class UserInfo(TypedDict, total=False):
    username: str | None
    groups: list[str] | None


class ReviewStatus(TypedDict, total=False):
    userInfo: UserInfo | None
    allowed: bool | None


class Review(TypedDict, total=False):
    """A SelfSubjectReview or a SelfSubjectAccessReview. They are not stored, so they have no name."""

    status: ReviewStatus | None


# An answer with an error.


class StatusCause(TypedDict, total=False):
    reason: str | None
    message: str | None


class StatusDetails(TypedDict, total=False):
    causes: list[StatusCause] | None


class ApiStatus(TypedDict, total=False):
    reason: str | None
    message: str | None
    details: StatusDetails | None
