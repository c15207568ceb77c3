"""What `nodeagent plan` printed for each mistake at the first trial with users: docs/development/mistakes.md."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["BEFORE"]

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
    "fips": "refused by `plan`; `explain fips` promised a drain and a reboot",
}
