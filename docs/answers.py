# SPDX-License-Identifier: Apache-2.0
"""The keys of all answers of the command line, for docs/reference/json.md."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from tables import code, table

from nodeagent import features
from nodeagent.cli import _schemas
from nodeagent.cli.main import build_parser

HEAD = ["key", "type", "content"]


def page() -> str:
    """A section for each answer of the base, then one for each feature with its keys and its answers."""
    printed = commands()
    parts = [answer(schema, kind, printed) for schema, kind in _schemas.base_answers().items()]
    for name, door in features.doors().items():
        added, own = _schemas.feature_keys(name), _schemas.feature_answers(name)
        if added or own:
            parts.append(f"## {door.title}\n\nSee [{door.title}](../{door.page}).")
        parts += [f"### {code(schema)}, keys of {door.title}\n\n{keys(listed)}" for schema, listed in added.items()]
        parts += [answer(schema, kind, printed, "###") for schema, kind in own.items()]
    return "\n\n".join(parts)


def answer(schema: str, kind: type[Any], printed: Mapping[str, list[str]], level: str = "##") -> str:
    about = ", ".join(code(f"{name} --json") for name in printed.get(schema, []))
    who = f"Printed by {about}." if about else "Printed on standard error by every command with `--json` that fails."
    # Text before the first empty line; a class without one has that of its base.
    words = f"{kind.__doc__} " if "__doc__" in vars(kind) and kind.__doc__ else ""
    return f"{level} {code(schema)}\n\n{words}{who}\n\n{table(HEAD, rows(_schemas.document(schema, kind)))}"


def keys(listed: Mapping[str, Any]) -> str:
    found = []
    for name, kind in listed.items():
        made = msgspec.defstruct("Added", [(name, kind)])
        found += list(rows(_schemas.document("", made)))
    return table(HEAD, found)


def commands() -> dict[str, list[str]]:
    """The commands that print each answer, by its schema."""
    printed: dict[str, list[str]] = {}
    for name, parser in leaves("nodeagent", build_parser()):
        extended = [extension.answer for extension in features.extensions(name.removeprefix("nodeagent "))]
        for schema in [*re.findall(r"nodeagent/[a-z-]+/v\d", help_of_json(parser) or ""), *extended]:
            printed.setdefault(schema, []).append(name)
    return printed


def help_of_json(parser: argparse.ArgumentParser) -> str | None:
    """The help of ``--json``; None for a command without it."""
    found = [action.help for action in parser._actions if "--json" in action.option_strings]
    return found[0] if found else None


def leaves(name: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every command that can be run, with its parser."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    # A command such as history works without its subcommands, too.
    if not below or not below[0].required:
        yield name, parser
    for action in below:
        for word, sub in action.choices.items():
            yield from leaves(f"{name} {word}", sub)


def rows(document: Mapping[str, Any]) -> Iterator[list[str]]:
    """A row for each key, those of objects within objects as ``lease.holder`` or ``deployments[].version``."""
    yield from object_rows(document, document.get("$defs", {}), "")


def object_rows(schema: Mapping[str, Any], defs: Mapping[str, Any], prefix: str) -> Iterator[list[str]]:
    schema = resolved(schema, defs)
    required = schema.get("required", [])
    for name, found in schema.get("properties", {}).items():
        words, below = described(found, defs)
        optional = "" if name in required else ", optional"
        yield [code(prefix + name), words + optional, found.get("description", "")]
        for suffix, inner in below:
            yield from object_rows(inner, defs, f"{prefix}{name}{suffix}.")


def described(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> tuple[str, list[tuple[str, Mapping[str, Any]]]]:
    """The type in words, and the objects within it, each with what follows the key in a path."""
    schema = resolved(schema, defs)
    if "anyOf" in schema:
        parts = [described(part, defs) for part in schema["anyOf"]]
        return " or ".join(words for words, _ in parts), [inner for _, below in parts for inner in below]
    if "enum" in schema:
        return ", ".join(code(str(word) or '""') for word in schema["enum"]), []
    match schema.get("type"):
        case "array" if "prefixItems" in schema:
            return f"list of {len(schema['prefixItems'])}", []
        case "array":
            words, below = described(schema["items"], defs)
            return f"list of {words}", [(f"[]{suffix}", inner) for suffix, inner in below]
        case "object" if "properties" in schema:
            return "object", [("", schema)]
        case "object" if schema.get("additionalProperties"):
            below = described(schema["additionalProperties"], defs)[1]
            return "object", [(f".NAME{suffix}", inner) for suffix, inner in below]
        case None:
            return "any", []
        case kind:
            return str(kind), []


def resolved(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Mapping[str, Any]:
    # The schema of a list has "items": false beside the forms of its items.
    return defs[schema["$ref"].rpartition("/")[2]] if isinstance(schema, Mapping) and "$ref" in schema else schema
