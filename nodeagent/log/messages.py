# SPDX-License-Identifier: Apache-2.0
"""The MESSAGE_ID and the priority of each kind of event. Problems of the status are warnings.

The ids are an interface: alerts and `journalctl MESSAGE_ID=...` depend on them. Never change or reuse one; a new kind
gets a new random id (`systemd-id128 new`). The catalog in systemd/ explains each of them to an admin.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from nodeagent.update.ports import events
from nodeagent.update.ports.events import Event

# Priorities of syslog(3). 0 to 2 mean that the system is unusable, which no event of the agent does.
ERROR, WARNING, NOTICE, INFO, DEBUG = 3, 4, 5, 6, 7


class CatalogEntry(NamedTuple):
    """The MESSAGE_ID of the catalog and the syslog priority of an event."""

    id: str
    priority: int


# Steps have the priority debug, because a config may have hundreds of files. The report raises visible ones.
MESSAGES: Mapping[type[Event], CatalogEntry] = {
    events.DaemonStarted: CatalogEntry("4d719cbf3d894b9eae529af2751a15f7", INFO),
    events.UpdateStarted: CatalogEntry("690fb44e31b3461ea75375c2d5e95ee5", NOTICE),
    events.PhaseEntered: CatalogEntry("94e088f9da054772911971e9e2e69f72", INFO),
    events.StepStarted: CatalogEntry("8f7db9464eb247b288e3ef95b3d68bbc", DEBUG),
    events.StepDone: CatalogEntry("399aeac730b74c6b9176d3892cb51577", DEBUG),
    events.StepSkipped: CatalogEntry("f03134c78d124a5cb791b72e13fceed5", DEBUG),
    events.StepFailed: CatalogEntry("997f6ee1f2754e11bbf3fd64c55508a3", ERROR),
    events.StagingAdvanced: CatalogEntry("132f39b47d5040ff83e78b278a068ad2", INFO),
    events.FenceChanged: CatalogEntry("f2bcee58086f48db9efe15966b0e74de", INFO),
    events.DeploymentsChanged: CatalogEntry("81a26c07e5c84efc8f1aeabc4df03a1f", INFO),
    events.StagedInspected: CatalogEntry("9ac52fbc6b0147978adddcfa56b2ac37", INFO),
    events.BootloaderChecked: CatalogEntry("c4f1b5f7b7ad4d1f9c1b2a4b0c6d7e52", INFO),
    events.DrainAdvanced: CatalogEntry("0863024d107b49b1bcfdbad7e246d977", INFO),
    events.UpdateWaiting: CatalogEntry("fcd2e72b137741b99207ed61c2fe5b2e", NOTICE),
    events.UpdateCancelled: CatalogEntry("60ce15ac9f6e4f1381458699acacd170", NOTICE),
    events.FallbackChosen: CatalogEntry("faebc5d4fdc44279a17a0896b2d695c2", WARNING),
    events.RevertStarted: CatalogEntry("0d309aa13ab34fd0ac02b2610e2e1832", WARNING),
    events.UpdateDone: CatalogEntry("1483f74e0dd840e6b4b681b5ac52db43", NOTICE),
    events.SafePartsApplied: CatalogEntry("f431a540fe82453b9150e198c0b65b5a", NOTICE),
    events.HostDegraded: CatalogEntry("dc9303ab909a4400a5adf40a0faff680", ERROR),
    events.ConfigRefused: CatalogEntry("b8aa65eb86b14601947045a9ede029d8", WARNING),
    events.UpdateResumed: CatalogEntry("cc77d93908c34c608b2cbf9becf9b484", NOTICE),
    events.DesiredChanged: CatalogEntry("a9db8293ee4544db8b61349e12921114", INFO),
    events.UpdateFinished: CatalogEntry("4ff1eb2bc1a246d98271c097d0f6a77f", NOTICE),
    events.LeaseChanged: CatalogEntry("8ccbe317b58047e6986ec90cb87ede20", INFO),
    events.MaintenanceChanged: CatalogEntry("bf7f2058a0204c41a1644533d3dd20d3", NOTICE),
    events.DriftChanged: CatalogEntry("e22d98ab99a44636927bdf84245f3d28", WARNING),
    events.EtcdMemberChanged: CatalogEntry("d93882ca97aa4d8497589779eb71a654", NOTICE),
    events.DaemonStopped: CatalogEntry("1f0ec54253e34d9ea875945da0b0b4e7", INFO),
    events.Warned: CatalogEntry("f2013b7ddb1445d9bee43aca7d55ead9", WARNING),
}
