# SPDX-License-Identifier: Apache-2.0
"""The keys of the JSON of each feature are recorded: of its own answers, and those that it adds to others."""

from __future__ import annotations

import msgspec

from nodeagent.cli import _schemas
from nodeagent.door import Door
from tests.features.test_doors import ALL
from tests.support.golden import check_keys


@ALL
def test_the_keys_that_scripts_read_are_recorded(name: str, door: Door) -> None:
    for schema, kind in _schemas.feature_answers(name).items():
        check_keys(_schemas.document(schema, kind), feature=name)
    for schema, keys in _schemas.feature_keys(name).items():
        added = msgspec.defstruct("Added", list(keys.items()))
        check_keys(_schemas.document(schema, added), feature=name)
