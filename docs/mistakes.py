# SPDX-License-Identifier: Apache-2.0
"""What `nodeagent plan` printed at the first trial with users.

For each mistake: docs/development/mistakes.md. For each change: docs/development/changes.md.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["BEFORE", "CHANGES_BEFORE"]

PLACE = "refused, with the place"
LIST_PLACE = "refused, with the index of the entry only: no path and no line in a file of 1,900 lines"
UNKNOWN_KEYS = "refused, with four or five lines about unknown keys"
HEAVY = "refused, with the hint to install the host again"

BEFORE: Mapping[str, str] = {
    "relative path": PLACE,
    "duplicate path": PLACE,
    "file below a file": PLACE,
    "unit and file of one name": PLACE,
    "/usr": PLACE,
    "mode in quotes": f'{LIST_PLACE}; "is a string"',
    "mode without the zero": LIST_PLACE,
    "unknown field": LIST_PLACE,
    "a typing error in a field": LIST_PLACE,
    "bad base64": "refused, with the character of the data",
    "http source": PLACE,
    "wrong indent": "refused, with line and column, in the words of libyaml",
    "tab": "refused, with line and column, in the words of libyaml",
    "NUL": PLACE,
    "empty": "refused",
    "truncated JSON": "refused, with line and column",
    "two documents": "refused",
    "Ignition 3.9": "refused, with the known versions",
    "no version": "refused",
    "wrong kind": "refused",
    "no kind": "refused",
    "no name": "refused",
    "Butane": UNKNOWN_KEYS,
    "bare Ignition": UNKNOWN_KEYS,
    "kubectl get -o yaml": UNKNOWN_KEYS,
    "pull secret": "refused, with line and column",
    "unit with a bad section": PLACE,
    "registries.conf": "refused, with line and column",
    "certificate": "refused",
    "kubelet.conf": "accepted; found out after the drain and the reboot",
    "a script with CR LF": "accepted",
    "garbage ssh key": "accepted, which locks the admin out",
    "password in the clear": "not tried",
    "kernel argument with a line break": "not tried",
    "empty kernel argument": "not tried",
    "no ssh key at all": "refused; the hint was to install the host again",
    "new user": HEAVY,
    "luks": HEAVY,
    "link": HEAVY,
    "image by tag": "accepted by `plan`, refused by `apply`",
    "fips": "refused by `plan`; `explain fips` promised a drain and a reboot",
}

PATH_ONLY = "Drain, Reboot for the path; no value, and no word about how to avoid it"
UNIT_ONLY = "Drain, Reboot for the unit; the same text for a new unit, a disabled one and a masked one"
ACTIONS = "the same actions, without values"
REASON = "the same actions and reason, without values"

CHANGES_BEFORE: Mapping[str, str] = {
    "chrony.conf": PATH_ONLY,
    "sysctl": PATH_ONLY,
    "NetworkManager profile": PATH_ONLY,
    "journald.conf": PATH_ONLY,
    "sshd_config.d": PATH_ONLY,
    "motd, content": PATH_ONLY,
    "motd, mode": "Drain, Reboot for the path; the same text as for a new content",
    "motd, removed": PATH_ONLY,
    "kubelet.conf": "Drain, Reboot for the path",
    "kubelet drop-in": "Drain, Reboot for the unit, without the name of the drop-in",
    "kubelet.service": "Drain, Reboot for the unit",
    "new unit": UNIT_ONLY,
    "disable a unit": UNIT_ONLY,
    "mask a unit": UNIT_ONLY,
    "ssh key": ACTIONS,
    "pull secret": ACTIONS,
    "registries.conf, digest mirror": REASON,
    "registries.conf, tag mirror": REASON,
    "user CA bundle": ACTIONS,
    "kernel arguments": "`kernelArguments:kernelArguments`, without the arguments",
    "OS image": "`osImageURL:osImageURL`, without the images",
    "kernel type and extension": "both fields, without values",
    "fips": "Unreconcilable, while `explain fips` promised a drain and a reboot",
    "four at once": "one Drain and one Reboot, for chrony.conf; no values",
    "another order": "nothing to do",
}
