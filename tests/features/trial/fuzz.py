# SPDX-License-Identifier: Apache-2.0
"""The note of the feature in the store, which may be damaged."""

from __future__ import annotations

import json
from typing import Final

from integration.fuzz.target import Target, choices, document
from nodeagent.features.trial.decide import from_text, to_text
from tests.features.trial.examples import TRIAL

NOTE: Final = json.loads(to_text(TRIAL))


def note(data: bytes) -> None:
    made = document(NOTE, data)
    trial = from_text(data.decode(errors="replace") if made is None else json.dumps(made))
    if trial is not None and from_text(to_text(trial)) != trial:
        raise AssertionError("the store would have another trial")


TARGETS: Final = (Target("trial-note", note, [b"", b"{}", json.dumps(NOTE).encode(), *choices(20)]),)
