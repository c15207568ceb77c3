# SPDX-License-Identifier: Apache-2.0
"""Read the node disruption policy of an admin, and report all of its problems at once.

Accepted are a whole ``MachineConfiguration`` object (operator.openshift.io/v1), of which only
``spec.nodeDisruptionPolicy`` is read, or just that mapping. Bounds and rules are those of the CRD, so that a policy
that passes here also passes in a cluster; unknown keys are errors here, where the API server would drop them silently.
Patterns of paths and of units, and ``%n``, are extensions (``path_pattern``, ``unit_pattern``, ``policy_extensions``).
"""

from __future__ import annotations

import re
from typing import Final, Protocol

from nodeagent.core.config.fields import Fields
from nodeagent.core.config.problems import Problems, shown, similar
from nodeagent.core.config.text import document
from nodeagent.core.config.unit_names import is_template
from nodeagent.core.plan import path_pattern, unit_pattern
from nodeagent.core.plan.change import Action, ActionType, PolicySource
from nodeagent.core.plan.path_pattern import is_pattern, pattern_problem
from nodeagent.core.plan.policy import OWN_NAME, SSHKEY, Entry, Policy, clean_path
from nodeagent.errors import InvalidInput
from nodeagent.reasons import Reason

# Files and units each; the CRD's bound.
MAX_ENTRIES: Final = 50
MAX_ACTIONS: Final = 10
MAX_UNIT_NAME: Final = 255
# PATH_MAX.
MAX_PATH: Final = 4096

API_VERSIONS: Final = ("operator.openshift.io/v1",)
KIND: Final = "MachineConfiguration"

# systemd 228 removed snapshots, which the CRD still accepts.
UNIT_NAME: Final = re.compile(
    r"[a-zA-Z0-9:._\\-]+(?:@[a-zA-Z0-9:._\\-]*)?"
    r"\.(?:service|socket|device|mount|automount|swap|target|path|timer|snapshot|slice|scope)"
)

WITH_UNIT: Final = {ActionType.RELOAD: "reload", ActionType.RESTART: "restart"}
ALONE: Final = (ActionType.REBOOT, ActionType.NONE)
NEVER_REQUESTED: Final = (ActionType.START, ActionType.STOP, ActionType.CLEAR_STATE, ActionType.RESTART_STATIC_POD)
BY_NAME: Final = {str(a): a for a in ActionType if a not in NEVER_REQUESTED}


def _unit_problem(name: str, *, pattern: bool = False) -> str:
    # Stricter than systemd. An instance or a template (@), or a pattern (*), is an extension, as patterns of paths are.
    if len(name) > MAX_UNIT_NAME:
        return f"is longer than {MAX_UNIT_NAME} characters"
    if pattern and (name.count("*") > 1 or ("*" in name and is_template(name))):
        return "must not have more than one *, and none beside a template, which is the pattern of its instances"
    # A letter in place of the * shows whether the rest is valid.
    if not UNIT_NAME.fullmatch(name.replace("*", "x") if pattern else name):
        meant = f"{name}.service"
        # systemctl completes the name of a service as well.
        service = f"; did you mean {meant}?" if "." not in name and UNIT_NAME.fullmatch(meant) else ""
        return f"must be letters, digits, : . _ \\ - @ and end in a unit type such as .service{service}"
    return ""


def parse_policy(text: bytes, what: str = "the policy") -> Policy:
    """Return the entries of the user, which ``merge`` adds to the built-in ones.

    Raises ``InvalidInput`` (``PolicyInvalid``).
    """
    problems = Problems()
    try:
        root = Fields(document.load(text, what), "", problems)
        body = _body(root)
        policy = _policy(body, what)
        body.finish()
        problems.check(what)
    except InvalidInput as error:
        raise InvalidInput(error.message, reason=Reason.POLICY_INVALID, problems=error.problems) from None
    return policy


def _body(root: Fields) -> Fields:
    """Return the mapping with files, units and sshkey."""
    api, kind = root.text("apiVersion"), root.text("kind")
    spec, inner = root.raw("spec"), root.raw("nodeDisruptionPolicy")
    if api is None and kind is None and spec is None:
        if inner is None:
            return root
        root.finish()
        return root.child("nodeDisruptionPolicy")
    if api not in API_VERSIONS:
        root.bad("apiVersion", f"must be {API_VERSIONS[0]}")
    # Any other object would read as an empty policy.
    if kind != KIND:
        root.bad("kind", f"must be {KIND}")
    return root.child("spec").child("nodeDisruptionPolicy")


def _policy(body: Fields, origin: str) -> Policy:
    sshkey = body.child(SSHKEY)
    actions = _actions(sshkey, required=False)
    sshkey.finish()
    files = _entries(body, "files", "path", origin)
    return Policy(
        files={key: entry for key, entry in files.items() if not is_pattern(key)},
        patterns={key: entry for key, entry in files.items() if is_pattern(key)},
        units=_entries(body, "units", "name", origin),
        # The API server replaces a missing sshkey by an empty list, so an empty list means the built-in entry.
        sshkey=Entry(SSHKEY, actions, PolicySource.USER, origin=origin) if actions else None,
    )


def _entries(body: Fields, section: str, key_name: str, origin: str) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    items = body.items(section)
    if len(items) > MAX_ENTRIES:
        # The entries are not read, so a hostile policy of any length costs nothing.
        body.bad(section, f"has {len(items)} entries; at most {MAX_ENTRIES} are allowed")
        return entries
    for item in body.children(section):
        key = _key(item, key_name)
        actions = _actions(item, required=True, of_unit=section == "units")
        item.finish()
        if key is None:
            continue
        if key in entries:
            item.bad(key_name, f"{shown(key)} occurs twice")
        elif rival := _rival(entries, key, actions, path_pattern if section == "files" else unit_pattern):
            what = "paths" if section == "files" else "units"
            item.bad(key_name, f"{shown(key)} and {shown(rival)} match the same {what}, but have other actions")
        entries[key] = Entry(key, actions, PolicySource.USER, origin=origin)
    return entries


class _Patterns(Protocol):
    """Patterns of paths, or of units."""

    def is_pattern(self, pattern: str, /) -> bool: ...

    def specificity(self, pattern: str, /) -> int: ...

    def overlap(self, pattern: str, other: str, /) -> bool: ...


def _rival(entries: dict[str, Entry], key: str, actions: tuple[Action, ...], kind: _Patterns) -> str:
    """Return the pattern that contradicts ``key``, where neither is more specific; "" if there is none."""
    if not kind.is_pattern(key):
        return ""
    for other, entry in entries.items():
        equal = kind.is_pattern(other) and kind.specificity(other) == kind.specificity(key)
        if equal and entry.actions != actions and kind.overlap(key, other):
            return other
    return ""


def _key(item: Fields, name: str) -> str | None:
    if (key := item.required(name)) is None:
        return None
    problem = _path_problem(key) if name == "path" else _unit_problem(key, pattern=True)
    if problem:
        item.bad(name, problem)
        return None
    return clean_path(key) if name == "path" else key


def _path_problem(path: str) -> str:
    if not path.startswith("/"):
        return "must be absolute"
    if len(path.encode()) > MAX_PATH:
        return f"is longer than {MAX_PATH} bytes"
    parts = clean_path(path).split("/")[1:]
    if parts == [""]:
        return "must name something below /: a policy for every file of the host is never what was meant"
    if any(part in ("", ".", "..") for part in parts):
        return "must not have empty, . or .. components"
    if any(ord(c) < 0x20 or ord(c) == 0x7F for c in path):
        return "must not have control characters"
    return pattern_problem(path)


def _actions(owner: Fields, *, required: bool, of_unit: bool = False) -> tuple[Action, ...]:
    """Return the actions of an entry. ``of_unit``: it is one of units, whose actions may name the unit that changes."""
    if owner.raw("actions") is None:
        if required:
            owner.bad("actions", "is required")
        return ()
    items = owner.items("actions")
    if len(items) > MAX_ACTIONS:
        owner.bad("actions", f"has {len(items)} actions; at most {MAX_ACTIONS} are allowed")
        return ()
    actions = [action for item in owner.children("actions") if (action := _action(item, of_unit=of_unit)) is not None]
    # A rule of the CRD: a reboot includes all other actions, and None excludes them.
    for alone in ALONE:
        if len(items) > 1 and any(action.type is alone for action in actions):
            owner.bad("actions", f"{alone} must be the only action of its entry")
    return tuple(actions)


def _action(item: Fields, *, of_unit: bool) -> Action | None:
    name = item.required("type")
    action_type = BY_NAME.get(name or "")
    if action_type is None:
        # Which of these keys it needs depends on the type that was meant.
        for key in WITH_UNIT.values():
            item.raw(key)
        item.finish()
        if name == "Special":
            item.bad("type", "Special is reserved for built-in entries")
        elif name is not None:
            meant = next((word for word in BY_NAME if word.lower() == name.lower()), "")
            advice = f"; did you mean {meant}?" if meant else similar(name, BY_NAME)
            item.bad("type", f"must be one of {', '.join(BY_NAME)}, is {shown(name)}{advice}")
        return None
    services = {
        kind: _service(item, key, of_unit=of_unit, wanted=kind is action_type) for kind, key in WITH_UNIT.items()
    }
    item.finish()
    if action_type not in WITH_UNIT:
        return Action(action_type)
    unit = services[action_type]
    return Action(action_type, unit) if unit else None


def _service(item: Fields, key: str, *, of_unit: bool, wanted: bool) -> str | None:
    """Return ``serviceName`` of the union member ``key``, which must exist if and only if the type requires it."""
    if item.raw(key) is None:
        if wanted:
            item.bad(key, "is required for this type")
        return None
    member = item.child(key)
    name = member.required("serviceName") if wanted else member.text("serviceName")
    member.finish()
    if not wanted:
        item.bad(key, "is not allowed for this type")
        return None
    if name == OWN_NAME and of_unit:
        return name
    if name is not None and (problem := _unit_problem(name)):
        member.bad("serviceName", problem)
        return None
    if name is not None and is_template(name):
        member.bad("serviceName", f"{shown(name)} is a template, which does not run: name one of its instances")
        return None
    return name
