# SPDX-License-Identifier: Apache-2.0
"""`nodeagent explain`: show the policy entry for a path, a unit or a user and the MachineConfigs that have it, or what
to do about a reason. Needs no daemon."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import yaml

from nodeagent.cli import _io
from nodeagent.cli._io import printable
from nodeagent.cli._plan_inputs import load_policy, readable_text, recommended_policy
from nodeagent.cli._plan_view import POLICY, actions_text
from nodeagent.cli._render import STRONG, paint
from nodeagent.cli._settings import valid_settings
from nodeagent.core.config.parse import parse
from nodeagent.core.config.paths import UNIT_DIR, path_problem
from nodeagent.core.config.unit_names import UNIT_TYPES, unit_name_problem
from nodeagent.core.config.users import FIRST_UID
from nodeagent.core.plan.change import Change, ChangeKind, PolicySource
from nodeagent.core.plan.plan_json import action_to_dict
from nodeagent.core.plan.policy import RECOMMENDED, SSHKEY, USER_DOMAINS, Entry, Policy, layered, match, restart
from nodeagent.core.plan.policy_explain import SERVICE, Explanation, as_policy, explain
from nodeagent.core.plan.policy_parse import parse_policy
from nodeagent.domains import default_policy, with_rules
from nodeagent.errors import InvalidInput
from nodeagent.host.fs.owners import Owners
from nodeagent.host.policy_files import read_policy_files
from nodeagent.kinds import AnyReason
from nodeagent.reasons import DOCUMENTATION, Reason, documentation, known_reasons, reason_of
from nodeagent.update.states import Phase

SCHEMA: Final = "nodeagent/explain/v1"
# Fields of a MachineConfig that are neither a file nor a unit nor a user.
FIELDS: Final = (
    "osImageURL",
    "kernelArguments",
    "kernelType",
    "extensions",
    "fips",
    "baseOSExtensionsContainerImage",
)
WORDS: Final = (*USER_DOMAINS, *FIELDS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target",
        metavar="PATH|UNIT|REASON",
        help="an absolute path, a unit name, an entry of a plan (user:alice), a reason of a status or an error, or "
        f"one of {', '.join(WORDS)}",
    )
    parser.add_argument(
        "--policy",
        metavar="P",
        help="a node disruption policy (- for stdin); replaces built-in entries (default: the policy of this host)",
    )
    parser.add_argument("--json", action="store_true", help=f"one JSON object ({SCHEMA})")


def run(args: argparse.Namespace) -> int:
    # A reason has neither a slash nor a dot, so it is no path and no unit.
    if args.target in known_reasons():
        _explain_reason(reason_of(args.target), as_json=args.json)
        return 0
    domain, key = _target(args.target)
    if args.policy is None:
        policy, path = _host_policy()
    else:
        policy, path = load_policy(args.policy), args.policy
    explanation = explain(policy, domain, key)
    recommended = _recommended(explanation)
    parts, directory = _fragments(domain, key)
    if args.json:
        _io.emit({**_to_dict(explanation, recommended), "policy_file": path, "from": parts})
    else:
        _show(explanation, recommended, path if args.policy is None else None, parts, directory)
    return 0


def _fragments(domain: str, key: str) -> tuple[list[str], str]:
    """Return the MachineConfigs that have an entry in the directory ``desired_config`` of this host, and its path.

    None of them if it is no directory, or this user cannot read it.
    """
    path = valid_settings().desired_config
    try:
        if not Path(path).is_dir():
            return [], ""
        origins = parse(readable_text(path), path).origins
    except PermissionError:
        return [], ""
    except InvalidInput as error:
        _io.warn(f"the MachineConfigs that have it are not known: {error.message}")
        return [], ""
    # The word alone stands for the entries of all users.
    wanted = f"{domain}:{key}"
    of_users = (f"{domain}:",) if domain in USER_DOMAINS and key == domain else ()
    names = [name for entry in origins if entry == wanted or entry.startswith(of_users) for name in origins[entry]]
    return list(dict.fromkeys(names)), path


def _recommended(explanation: Explanation) -> Entry | None:
    """Return the entry of the recommended policy for a path that no entry covers."""
    if explanation.source is not PolicySource.NONE or not explanation.actions:
        return None
    covered = match(recommended_policy(), Change(explanation.domain, explanation.key, ChangeKind.MODIFIED))
    return covered.entry if covered is not None else None


def _host_policy() -> tuple[Policy, str | None]:
    """Return the policy of this host and the path of its file; files that this user cannot read are left out."""
    settings = valid_settings()
    texts: dict[str, bytes] = {}
    for path, text in read_policy_files(settings).items():
        if isinstance(text, bytes):
            texts[path] = text
        elif text.reason == Reason.CONFIG_UNREADABLE:
            _io.warn(f"its entries are left out: root can read {path}, a part of the policy of this host")
        # A file that does not exist has no entries to show.
        elif text.reason != Reason.NO_POLICY:
            raise text
    parsed = {path: parse_policy(text, path) for path, text in texts.items()}
    layers = [with_rules(policy) if path == RECOMMENDED else policy for path, policy in parsed.items()]
    return layered(default_policy(), layers), settings.policy if settings.policy in texts else next(iter(texts), None)


def _explain_reason(reason: AnyReason, *, as_json: bool) -> None:
    advice = {"meaning": reason.meaning, "hint": reason.hint, "documentation": documentation(reason)}
    if as_json:
        _io.emit({"schema": SCHEMA, "domain": "reason", "key": reason, **advice})
    else:
        print(paint(reason, STRONG))
        print(f"  means       {advice['meaning']}")
        print(f"  what to do  {advice['hint']}")
        print(f"  see         {advice['documentation']}")


def _target(text: str) -> tuple[str, str]:
    """Return the domain and the key of an entry: of its path, of the name of its unit, or of its id in a plan."""
    domain, _, key = text.partition(":")
    if domain in USER_DOMAINS and key:
        return domain, key
    if (domain == "file" and key.startswith("/")) or (domain == "unit" and key):
        text = key
    elif domain in FIELDS and key == domain:
        text = domain
    if text.startswith("/"):
        # A policy names a directory without the slash at its end.
        path = text.rstrip("/")
        if problem := path_problem(path):
            raise InvalidInput(f"the path {problem}", reason=Reason.USAGE)
        return "file", path
    if text in WORDS:
        return text, text
    if problem := unit_name_problem(text):
        advice = f"a path starts with /, a unit ends in .service and the like, other words are: {', '.join(WORDS)}"
        # Of a word without a dot, the missing type of a unit is no help.
        message = f"{text!r} is no path, no unit and no known reason" + (f": {problem}" if "." in text else "")
        raise InvalidInput(message, reason=Reason.USAGE, hint=_closest(text) or advice)
    return "unit", text


def _closest(text: str) -> str:
    """Return a hint with the word, the reason or the unit that was meant, "" if none is close."""
    if text.capitalize() in list(Phase):
        manual = f"man nodeagent, PHASES, or {DOCUMENTATION}/reference/phases.md"
        return f"it is a phase, whose reason nodeagent status names; see {manual}"
    words = {str(word).lower(): str(word) for word in (*WORDS, *known_reasons())}
    close = [words[word] for word in get_close_matches(text.lower(), words, 1, cutoff=0.75)]
    name, dot, ending = text.rpartition(".")
    if not close and dot and ending not in UNIT_TYPES:
        close = [f"{name}.{unit_type}" for unit_type in get_close_matches(ending, UNIT_TYPES, 1, cutoff=0.75)]
    # Links and directories have the ids of files.
    if not close and ":/" in text:
        close = [text[text.index(":/") + 1 :]]
    # systemctl completes the name of a service as well.
    if not close and not dot and not unit_name_problem(f"{text}.service"):
        account = Owners().user(text)
        close = [f"user:{text}" if account is not None and account.uid >= FIRST_UID else f"{text}.service"]
    return f"did you mean {close[0]}?" if close else ""


def _to_dict(explanation: Explanation, recommended: Entry | None) -> dict[str, Any]:
    """Return the explanation as JSON data.

    Its key ``recommended`` has the actions of the recommended policy for a path without an entry. It is None if that
    policy has no entry either, or if a rule decides (``recommended_rule``).
    """
    return {
        "schema": SCHEMA,
        "domain": explanation.domain,
        "key": explanation.key,
        "policy": str(explanation.source),
        "entry": explanation.entry.key if explanation.entry else None,
        "match": explanation.match,
        "file": (explanation.entry.origin if explanation.entry else "") or None,
        "actions": None if explanation.actions is None else [action_to_dict(action) for action in explanation.actions],
        "rule": explanation.entry.summary if explanation.entry and explanation.entry.rule else None,
        "replaces": explanation.replaced is not None,
        "shadowed": [{"entry": entry.key, "policy": str(entry.source)} for entry in explanation.shadowed],
        "reason": explanation.reason,
        "recommended": None
        if recommended is None or recommended.rule
        else [action_to_dict(action) for action in recommended.actions],
        "recommended_rule": recommended.summary if recommended is not None and recommended.rule else None,
    }


def _show(
    explanation: Explanation, recommended: Entry | None, path: str | None, parts: Sequence[str], directory: str
) -> None:
    """``parts`` are the MachineConfigs in ``directory`` that have the entry."""
    rows = list(_rows(explanation, recommended))
    if parts:
        rows.append(("from", f"{', '.join(parts)} ({directory})"))
    if path is not None:
        file = explanation.entry.origin if explanation.entry is not None else ""
        rows.append(("policy of", f"this host ({file or path})"))
    width = max(len(label) for label, _ in rows)
    print(paint(printable(_title(explanation)), STRONG))
    for label, text in rows:
        print(f"  {label.ljust(width)}  {printable(text)}")


def _rows(explanation: Explanation, recommended: Entry | None) -> Iterator[tuple[str, str]]:
    yield "policy", POLICY[explanation.source]
    yield "why", explanation.reason
    if explanation.actions == ():
        yield "does", "nothing: a config that changes it is refused"
    elif explanation.actions is None and explanation.entry is not None:
        yield "does", explanation.entry.summary
    else:
        yield "does", actions_text(explanation.actions or ())
    if recommended is not None:
        yield "to avoid", f"{_entry_text(recommended)}, with the setting recommended_policy: true"
    elif explanation.source is PolicySource.NONE and explanation.actions and explanation.domain in ("file", "unit"):
        manual = f"man nodeagent, POLICY, or {DOCUMENTATION}/usage/avoid-a-reboot.md"
        yield "to avoid", f"an entry in /etc/nodeagent/policy.yaml: {manual}"
    if (policy := _policy_text(explanation, recommended)) is not None:
        yield "as YAML", policy
    if explanation.replaced is not None:
        yield "instead of", _entry_text(explanation.replaced)
    for entry in explanation.shadowed:
        yield "not used", f"{entry.key} ({POLICY[entry.source]}): {_entry_text(entry)}"
    if explanation.domain in USER_DOMAINS and explanation.domain != SSHKEY:
        yield "note", "the entry sshkey of a policy decides about the account, the keys and the password of each user"
    if explanation.domain == "file" and explanation.source is PolicySource.NONE and _is_directory(explanation.key):
        yield "note", "this is about files below it; the directory as an entry of storage.directories needs no action"
    if explanation.domain == "file" and explanation.key.startswith(f"{UNIT_DIR}/"):
        yield "note", "this is about a file; units and drop-ins of systemd.units go by the name of the unit"


def _policy_text(explanation: Explanation, recommended: Entry | None) -> str | None:
    """Return a policy in one line of YAML: the entry that decides, or one that would avoid the reboot.

    None if a rule decides, or where a policy can have no entry.
    """
    entry = explanation.entry or recommended
    if entry is not None:
        policy = None if entry.rule else as_policy(explanation.domain, entry.key, entry.actions)
    elif explanation.actions:
        service = explanation.key if explanation.domain == "unit" else SERVICE
        policy = as_policy(explanation.domain, explanation.key, (restart(service),))
    else:
        policy = None
    if policy is None:
        return None
    return str(yaml.safe_dump(policy, default_flow_style=True, sort_keys=False, width=float("inf"))).rstrip()


def _is_directory(path: str) -> bool:
    try:
        return Path(path).is_dir()
    except OSError:
        return False


def _title(explanation: Explanation) -> str:
    of_user = explanation.domain in USER_DOMAINS and explanation.key != explanation.domain
    return f"{explanation.domain}:{explanation.key}" if of_user else explanation.key


def _entry_text(entry: Entry) -> str:
    return entry.summary if entry.rule else actions_text(entry.actions)
