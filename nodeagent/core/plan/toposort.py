"""The order in which units are reloaded or restarted.

Each policy entry lists its actions in a deliberate order: the trust store is rebuilt before the runtime that reads it
restarts. The lists of all entries are partial orders, and the result keeps each of them. Unrelated units are sorted by
name, so that the same change always runs in the same order. If lists contradict each other, the units of that cycle are
sorted by name, and all other orders still hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


def merge_orders(sequences: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Return all names of ``sequences``, each once. The first place of a repeated name counts."""
    after: dict[str, set[str]] = {}
    for sequence in sequences:
        names = tuple(dict.fromkeys(sequence))
        for index, name in enumerate(names):
            after.setdefault(name, set()).update(names[index + 1 :])
    # Orders are transitive: a list may put a unit before one that another list puts before a third.
    later = {name: _reachable(after, name) - {name} for name in after}
    earlier: dict[str, set[str]] = {name: set() for name in after}
    for name, others in later.items():
        for other in others:
            # The names of a cycle do not wait for each other.
            if name not in later[other]:
                earlier[other].add(name)
    ordered: list[str] = []
    left = sorted(after)
    while left:
        done = set(ordered)
        # There always is one: only a cycle could leave none, and the names of a cycle do not wait for each other.
        name = next(name for name in left if earlier[name] <= done)
        ordered.append(name)
        left.remove(name)
    return tuple(ordered)


def _reachable(after: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    todo = [start]
    while todo:
        new = after[todo.pop()] - found
        found |= new
        todo.extend(new)
    return found
