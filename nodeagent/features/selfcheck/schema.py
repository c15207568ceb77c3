# SPDX-License-Identifier: Apache-2.0
"""The JSON of the feature, see ``nodeagent.contract``."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from nodeagent.contract.keys import Keys, about
from nodeagent.core.self_check import CheckResult


class Check(Keys):
    id: Annotated[str, about("the check")]
    result: Annotated[CheckResult, about("skipped does not count as a failure")]
    message: Annotated[str, about("what was found, or why it was skipped")]
    remedy: Annotated[str, about("what to do; empty if nothing is to be done")]


class Answer(Keys):
    schema: Annotated[Literal["nodeagent/selfcheck/v1"], about("the schema of this object")]
    version: Annotated[str, about("of nodeagent")]
    ok: Annotated[bool, about("whether no check failed")]
    checks: Annotated[list[Check], about("each check with its result")]


ANSWERS: Final = {"nodeagent/selfcheck/v1": Answer}
