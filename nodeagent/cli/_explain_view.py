"""An explanation for people."""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.cli._output import printable
from nodeagent.cli._plan_view import POLICY, actions_text
from nodeagent.cli._terminal import STRONG, paint
from nodeagent.core.config.file_tree import UNIT_DIR
from nodeagent.core.plan.policy import Entry
from nodeagent.core.plan.policy_explain import Explanation

__all__ = ["show"]


def show(found: Explanation) -> None:
    rows = list(_rows(found))
    width = max(len(label) for label, _ in rows)
    print(paint(printable(found.key), STRONG))
    for label, text in rows:
        print(f"  {label.ljust(width)}  {printable(text)}")


def _rows(found: Explanation) -> Iterator[tuple[str, str]]:
    yield "policy", POLICY[found.source]
    yield "why", found.reason
    if found.actions == ():
        yield "does", "nothing: a config that changes it is refused"
    elif found.actions is None and found.entry is not None:
        yield "does", found.entry.summary
    else:
        yield "does", actions_text(found.actions or ())
    if found.replaced is not None:
        yield "instead of", _entry_text(found.replaced)
    for entry in found.shadowed:
        yield "not used", f"{entry.key} ({POLICY[entry.source]}): {_entry_text(entry)}"
    if found.domain == "file" and found.key.startswith(f"{UNIT_DIR}/"):
        yield "note", "this is about a file; units and drop-ins of systemd.units go by the name of the unit"


def _entry_text(entry: Entry) -> str:
    return entry.summary if entry.rule else actions_text(entry.actions)
