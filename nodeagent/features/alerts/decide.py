# SPDX-License-Identifier: Apache-2.0
"""The answer of Prometheus to the query whose result must be empty before this node is disrupted.

https://prometheus.io/docs/prometheus/latest/querying/api/#instant-queries
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from nodeagent.core.enumerated import enumerated

# Alerts that a message names. During an outage hundreds may fire.
MAX_NAMED: Final = 5

# Characters of one text of the server.
MAX_TEXT: Final = 100


def firing(answer: Mapping[str, Any]) -> str:
    """Return the number and the names of the alerts in a successful answer, "" if there are none.

    Raises ``ValueError`` for an answer that is no instant vector.
    """
    data = answer.get("data")
    if answer.get("status") != "success" or not isinstance(data, dict):
        raise ValueError("the answer is not that of Prometheus")
    kind, result = data.get("resultType"), data.get("result")
    if kind != "vector" or not isinstance(result, list):
        raise ValueError(f"the query returns a {str(kind)[:MAX_TEXT]}, and not a vector")
    if not result:
        return ""
    # One alert may fire for many series. Its name is listed once.
    names = dict.fromkeys(map(_name, result))
    return f"{len(result)} firing: {enumerated(names, MAX_NAMED)}"


def incomplete(answer: Mapping[str, Any]) -> str:
    """Return the first warning of a successful answer: a part of the data may be missing in it, as with Thanos."""
    warnings = answer.get("warnings")
    return str(warnings[0])[:MAX_TEXT] if isinstance(warnings, list) and warnings else ""


def rejection(answer: Mapping[str, Any]) -> str:
    """Return the error of an answer; "" if it has none."""
    error = answer.get("error")
    return error[:MAX_TEXT] if isinstance(error, str) else ""


def _name(sample: object) -> str:
    """Return the name of the alert of a sample, or else its first label."""
    labels = sample.get("metric") if isinstance(sample, dict) else None
    if not isinstance(labels, dict) or not labels:
        return "a series without labels"
    key = next((key for key in ("alertname", "__name__") if key in labels), "")
    if key:
        return str(labels[key])[:MAX_TEXT]
    first = min(labels)
    return f"{first}={labels[first]}"[:MAX_TEXT]
