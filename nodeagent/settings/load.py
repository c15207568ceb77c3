# SPDX-License-Identifier: Apache-2.0
"""Find, read and merge the files with the settings.

Fragments are YAML files in ``config.d`` of /usr/lib/nodeagent (the package), /run/nodeagent (until the next boot) and
/etc/nodeagent (the admin). A file replaces one of the same name in an earlier directory, and a link to /dev/null masks
it. The remaining files are merged key by key in the order of their names: the last one wins.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from nodeagent.core.config.text.document import encodes
from nodeagent.errors import InvalidInput, Problem
from nodeagent.settings.check import Value, check_values, invalid, valid_values
from nodeagent.settings.schema import Settings, groups

# From the weakest to the strongest.
DIRECTORIES = ("/usr/lib/nodeagent/config.d", "/run/nodeagent/config.d", "/etc/nodeagent/config.d")

# Largest size of one fragment. All settings fit into it; anything larger is not a settings file.
MAX_BYTES = 64 * 1024


# The values of one file by dotted key (``reboot.allow``), in the order of the file.
Fragment = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Loaded:
    """``origins`` maps each dotted key that is set in a file to its ``file:line``."""

    settings: Settings
    origins: Mapping[str, str]
    files: tuple[str, ...]


def find(directories: Sequence[str | Path] = DIRECTORIES) -> list[Path]:
    """Return the effective fragments, in the order in which they are merged."""
    chosen: dict[str, Path] = {}
    for directory in directories:
        try:
            names = os.listdir(directory)  # noqa: PTH208 - as cheap as it gets, and errors are per directory
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise _unreadable(str(directory), error) from error
        # Editors keep their unsaved copies as hidden files beside the original.
        chosen |= {name: Path(directory, name) for name in names if name.endswith(".yaml") and name[0] != "."}
    masked = {name for name, path in chosen.items() if path.is_symlink() and str(path.readlink()) == os.devnull}
    return [path for name, path in sorted(chosen.items()) if name not in masked]


def _unreadable(path: str, error: OSError) -> InvalidInput:
    return invalid([Problem(path, error.strerror or "cannot be read")])


def read(path: str | Path) -> Fragment:
    """Read one fragment. Raises ``InvalidInput`` with all problems of the text; ``check`` checks the values."""
    try:
        # A pipe of that name must not keep the agent from starting.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise _unreadable(str(path), error) from error
    # None: a pipe into which no writer has written yet.
    return parse_fragment(str(path), text or b"")


def parse_fragment(path: str, text: bytes) -> Fragment:
    def problem(mark: Any, message: str) -> Problem:
        return Problem(f"{path}:{mark.line + 1}" if mark is not None else path, message)

    if len(text) > MAX_BYTES:
        raise invalid([Problem(path, f"larger than {MAX_BYTES // 1024} KiB")])
    problems: list[Problem] = []
    values: dict[str, Value] = {}
    known = groups()

    def walk(node: Any, prefix: str) -> None:
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                problems.append(problem(key_node.start_mark, "a key must be a word"))
                continue
            key = prefix + key_node.value
            if key in values:
                problems.append(problem(key_node.start_mark, f"{key} is set twice in this file"))
            elif key in known and isinstance(value_node, yaml.MappingNode):
                walk(value_node, f"{key}.")
            else:
                where = f"{path}:{key_node.start_mark.line + 1}"
                values[key] = Value(loader.construct_object(value_node, deep=True), where)

    try:
        # Not the C loader: it recurses without a limit, and deep nesting would kill the process.
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        problems += [
            problem(node.start_mark, "half of a surrogate pair is not a character")
            for node in _scalars(root)
            if not encodes(node.value)
        ]
        if problems:
            # Such a key must not get into a message.
            raise invalid(problems)
        if isinstance(root, yaml.MappingNode):
            walk(root, "")
        elif root is not None:
            problems.append(problem(root.start_mark, "must be a mapping of keys to values"))
    except yaml.MarkedYAMLError as error:
        problems.append(problem(error.problem_mark, error.problem or "not YAML"))
    except InvalidInput:
        raise
    except Exception as error:  # noqa: BLE001 - a value that does not fit its tag or form raises one of many errors
        problems.append(Problem(path, f"not YAML: {type(error).__name__}"))
    if problems:
        raise invalid(problems)
    return values


def _scalars(root: Any) -> Iterator[Any]:
    """Yield each scalar of a document once. An alias may lead back to its own collection."""
    seen: set[int] = set()
    nodes = [root] if root is not None else []
    while nodes:
        node = nodes.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node.value, str):
            yield node
        else:
            for item in node.value:
                nodes += item if isinstance(item, tuple) else [item]


def merge(fragments: Iterable[Fragment]) -> dict[str, Value]:
    merged: dict[str, Value] = {}
    for fragment in fragments:
        merged |= fragment
    return merged


def load(directories: Sequence[str | Path] = DIRECTORIES) -> Loaded:
    """Read, merge and check all fragments, and set an empty ``node_name`` to the host name in lower case.

    Blocking: a few small files. Raises ``InvalidInput`` with the problems of all files.
    """
    fragments: list[Fragment] = []
    problems: list[Problem] = []
    paths = find(directories)
    for path in paths:
        try:
            fragments.append(read(path))
        except InvalidInput as error:
            # The other files are read on, so that an admin gets the problems of all of them at once.
            problems += error.problems
    merged = merge(fragments)
    try:
        settings = check_values(merged)
    except InvalidInput as error:
        raise invalid([*problems, *error.problems]) from None
    if problems:
        raise invalid(problems)
    # The kubelet registers its Node under the host name in lower case, too.
    if not settings.node_name:
        settings = msgspec.structs.replace(settings, node_name=os.uname().nodename.lower())
    origins = {key: value.where for key, value in merged.items()}
    return Loaded(settings, origins, tuple(map(str, paths)))


def salvage(directories: Sequence[str | Path] = DIRECTORIES) -> Settings:
    """Return the valid values of files that ``load`` rejected; see ``valid_values``."""
    fragments: list[Fragment] = []
    for directory in directories:
        # Each directory and each file alone, so that one that cannot be read does not cost the others.
        with contextlib.suppress(InvalidInput):
            for path in find([directory]):
                with contextlib.suppress(InvalidInput):
                    fragments.append(read(path))
    return valid_values({key: value.value for key, value in merge(fragments).items()})
