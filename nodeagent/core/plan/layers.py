# SPDX-License-Identifier: Apache-2.0
"""Documents that a program merges from several TOML files, and the keys in which two of them differ."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from nodeagent.core.plan.change import HIDDEN, Action, KeyChange, shortened

Key = tuple[str, ...]
"""A key with the names of the tables above it."""

Rule = Callable[[Key], tuple[tuple[Action, ...], str]]
"""The actions that a changed key requests, and a remark for the plan, or ""."""

Layers = Mapping[str, Mapping[str, Any] | None]
"""The data of files by path, in the order in which the program reads them. None: it is no TOML."""

# Parts of names whose values are not shown.
SECRET: Final = ("password", "secret", "token", "auth", "identitytoken")

# Files that editors, package managers and interrupted copies leave.
LEFTOVERS: Final = (".bak", ".orig", ".rej", ".rpmnew", ".rpmorig", ".rpmsave", ".save", ".swo", ".swp", ".tmp", "~")


def parse_toml(content: bytes) -> tuple[dict[str, Any] | None, str]:
    """Return the document, or None and the problem, which quotes no value of the file."""
    try:
        return tomllib.loads(content.decode()), ""
    except UnicodeDecodeError as error:
        return None, f"is not UTF-8 at offset {error.start}"
    except RecursionError:
        return None, "is nested too deeply"
    except tomllib.TOMLDecodeError as error:
        where = str(error).rpartition("(at ")[2].rstrip(")")
        return None, f"is not TOML: error at {where}"
    except ValueError:
        # Python converts no integer of more than 4300 digits, and tomllib does not catch that error.
        return None, "is not TOML: a number has too many digits"


def toml_problems(content: bytes) -> Iterator[str]:
    """Yield the problem of a file that is no TOML."""
    if problem := parse_toml(content)[1]:
        yield problem


def merged(layers: Layers, *, whole: Callable[[Key], bool], append: bool = False) -> dict[Key, str]:
    """Return the merged document as values in JSON by key.

    A later layer wins, table by table; a table for which ``whole`` is true is replaced whole. With ``append`` lists are
    added together, and an empty value does not replace another one.
    """
    document: dict[str, Any] = {}
    for data in layers.values():
        _merge(document, data or {}, (), whole, append=append)
    return dict(_leaves(document, ()))


def _merge(
    onto: dict[str, Any], data: Mapping[str, Any], above: Key, whole: Callable[[Key], bool], *, append: bool
) -> None:
    for name, value in data.items():
        key, previous = (*above, name), onto.get(name)
        if isinstance(value, Mapping) and not whole(key):
            table = dict(previous) if isinstance(previous, dict) else {}
            _merge(table, value, key, whole, append=append)
            onto[name] = table
        elif append and isinstance(value, list) and isinstance(previous, list):
            # containerd appends lists of its imports, where CRI-O replaces them.
            onto[name] = [*previous, *value]
        elif not (append and previous is not None and not value and not isinstance(value, Mapping)):
            onto[name] = value


def _leaves(value: Any, key: Key) -> Iterator[tuple[Key, str]]:
    # An empty table is a value, because a program may tell it from a missing one. Only the whole document has no key.
    if isinstance(value, Mapping) and (value or not key):
        for name in value:
            yield from _leaves(value[name], (*key, name))
    else:
        # TOML has dates and times, and JSON has not.
        yield key, json.dumps(value, default=str, sort_keys=True)


def dotted(key: Key) -> str:
    """Return a key as TOML writes it, with quotes where a name needs them."""
    return ".".join(name if name.replace("-", "").replace("_", "").isalnum() else f'"{name}"' for name in key)


def key_changes(
    before: Layers,
    after: Layers,
    changed: Sequence[str],
    documents: tuple[Mapping[Key, str], Mapping[Key, str]],
    rule: Rule,
) -> list[KeyChange]:
    """Return the keys that differ between both ``documents``, each attributed to one of the ``changed`` files.

    That is the last of them that has the key on either side, because it wins; or the last of all of them.
    """
    if not changed:
        return []
    own, now = ({path: dict(_leaves(data or {}, ())) for path, data in layers.items()} for layers in (before, after))
    changes = []
    was_set, is_set = documents
    for key in sorted(key for key in was_set.keys() | is_set.keys() if was_set.get(key) != is_set.get(key)):
        having = [path for path in changed if key in own.get(path, {}) or key in now.get(path, {})]
        actions, effect = rule(key)
        was, new = (_shown(key, document.get(key, "")) for document in documents)
        changes.append(KeyChange((having or [*changed])[-1], dotted(key), was, new, actions, effect))
    return changes


def not_taken_over(running: bytes, keys: Sequence[KeyChange]) -> str | None:
    """Return which of ``keys`` the configuration ``running`` has with the previous value, "" if none has.

    None if that is not known of each: a program may print another form of a value, and secrets are not in a plan.
    """
    data = parse_toml(running)[0]
    values = {dotted(key): value for key, value in _leaves(data, ())} if data else {}
    effective = {key.key: values.get(key.key) for key in keys}
    # A key that is not set any more may have its previous value as the default.
    shown = [key for key in keys if key.after not in ("", HIDDEN) and key.before not in ("", key.after)]
    if stale := [key.key for key in shown if effective[key.key] == key.before]:
        return f"it still runs with the previous value of {', '.join(stale)}"
    return "" if keys and all(effective[key.key] == key.after for key in keys) else None


def by_name(files: Collection[str], directories: Sequence[str], suffix: str) -> list[str]:
    """Return the paths of the files in ``directories`` that count, in the order of their names.

    A file replaces those of the same name in earlier directories.
    """
    paths: dict[str, str] = {}
    for directory in directories:
        for path in files:
            above, _, name = path.rpartition("/")
            if above == directory and name.endswith(suffix):
                paths[name] = path
    return [path for _, path in sorted(paths.items())]


def is_leftover(path: str) -> bool:
    """Return whether a file of a drop-in directory is probably there by accident."""
    # CRI-O reads every file of its directory, whatever the ending, so a backup there is configuration.
    name = path.rpartition("/")[2]
    return name.startswith(".") or name.endswith(LEFTOVERS)


def _shown(key: Key, value: str) -> str:
    if value and any(word in name.lower() for name in key for word in SECRET):
        return HIDDEN
    return shortened(value)
