# SPDX-License-Identifier: Apache-2.0
"""Rewrite the parts of the docs that are taken from the code. ``--check`` only reports whether they are up to date."""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import inspect
import io
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from msgspec import Struct

from nodeagent.agent.report.dbus import _Manager as Manager
from nodeagent.cli.main import build_parser
from nodeagent.cli.main import main as cli
from nodeagent.core.plan.change import Action
from nodeagent.core.plan.domain import ByContent, MemberHealth, SocketHealth
from nodeagent.core.plan.policy import SSHKEY
from nodeagent.core.plan.policy_parse import parse_policy
from nodeagent.core.plan.unit_types import TYPES
from nodeagent.domains import DOMAINS, sysctl, with_rules
from nodeagent.door import Door
from nodeagent.features import commands as feature_commands
from nodeagent.features import doors
from nodeagent.features import options as feature_options
from nodeagent.host.dbus.codec import complete_types
from nodeagent.kinds import AnyReason
from nodeagent.reasons import Reason
from nodeagent.report.exposition import Family
from nodeagent.report.metrics import HISTORY, families
from nodeagent.report.properties import properties as typed_properties
from nodeagent.report.views.registry import message_ids
from nodeagent.settings.schema import Settings, flatten, keys, part_keys
from nodeagent.update.course import COURSE, DISRUPTIVE, Cancellation, Failure, Restart, Row, Stage, following
from nodeagent.update.decide import resume
from nodeagent.update.record import Record
from nodeagent.update.states import DEGRADED, IDLE, Abort, Apply, Fallback, Leg, Phase, Prepare, Revert, State

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "docs"))
answers = importlib.import_module("answers")
figures = importlib.import_module("figures")
findings = importlib.import_module("findings")
growth_figure = importlib.import_module("growth_figure")
lists = importlib.import_module("lists")
plan_figure = importlib.import_module("plan_figure")
tables = importlib.import_module("tables")
table, code = tables.table, tables.code
EXAMPLES = ROOT / "docs/examples"
RECOMMENDED = ROOT / "systemd/usr/lib/nodeagent/policy-recommended.yaml"
CATALOG = ROOT / "systemd/usr/lib/systemd/catalog/nodeagent.catalog"

PHASES: Mapping[Phase, str] = {
    Phase.IDLE: "No update is in progress. The desired config is watched.",
    Phase.STAGING: "Stages the next OS deployment and keeps it locked while everything runs. Only if the OS changes.",
    Phase.LEASING: "Waits for a window, a slot, the lease, and other actors on the node. Nothing is written yet.",
    Phase.DRAINING: "Drains the node, in a cluster, until drain.timeout; drain.on_deadline sets what happens then.",
    Phase.WRITING: "Records the previous content, then writes files, units, enablement and users.",
    Phase.ACTING: "Runs the actions: daemon-reload, stops, reloads, restarts.",
    Phase.VERIFYING: "Checks the booted deployment and the units, then compares the whole config with the host.",
    Phase.REBOOTING: "Waits for inhibitors, warns users, unlocks the staged deployment, and requests the reboot.",
    Phase.REVERTING: "The new config is bad: restores the old deployment and the previous content, and acts again.",
    Phase.RELEASING: "Gives back cordon, lease and slot, and removes records that are no longer needed.",
    Phase.DEGRADED: "Operator action required; see the reason. The host is as it is.",
}
PRIORITIES = {3: "err", 4: "warning", 5: "notice", 6: "info", 7: "debug"}


def phases() -> str:
    """A table of the phases. ``resume`` decides about a restart of the daemon, from a record of each phase in its first
    leg."""
    rows = []
    for phase in Phase:
        leg, row = next((leg, row) for (leg, found), row in COURSE.items() if found is phase)
        limit = row.deadline
        record = Record(phase, Abort("") if leg is Abort else leg(), boot_id="this")
        crash, boot = resume(record, "this").value, resume(record, "another").value
        rows.append(
            [
                phase.value,
                PHASES[phase],
                f"{duration(limit)}{' without progress' * row.by_progress}" if limit else "",
                "yes" if phase in DISRUPTIVE else "",
                crash if crash == boot else f"{crash}; after a reboot: {boot}",
            ]
        )
    return table(["phase", "what happens", "at most", "lease", "found at the start of the daemon"], rows)


RESTARTS: Mapping[Restart, str] = {
    Restart.START_OVER: "gives back what was taken, and starts over: nothing was written",
    Restart.DRAIN: "continues the drain, with the same deadline",
    Restart.WRITE: "writes everything again",
    Restart.ACT: "runs the actions that are not marked as done",
    Restart.STAGE: "stages again",
    Restart.REBOOT_AGAIN: "requests the reboot again, three times at most",
    Restart.VERIFY: "verifies",
    Restart.REVERT: "continues to restore",
    Restart.RELEASE: "releases",
}
FAILURES: Mapping[Failure, str] = {
    Failure.POSTPONE: "gives back what it took, and is tried again later",
    Failure.REBOOT: "a fallback reboot where that may help, otherwise a revert",
    Failure.REVERT: "a revert",
    Failure.DEGRADE: "`Degraded`, half-way",
    Failure.REPORT_END: "reports the end, and releases later",
}
CANCELLATIONS: Mapping[Cancellation | AnyReason, str] = {
    Cancellation.END: "the update ends",
    Cancellation.REVERT: "a revert, unless only a reboot leads back",
    Cancellation.REVERTING: "is reverted already",
    Reason.CANCEL_TOO_LATE: "too late",
    Reason.NO_UPDATE: "no update",
}


def under_way() -> list[tuple[State, Row]]:
    """The states in which an update has work to do, in the order of the course."""
    return [(state, row) for state, row in COURSE.items() if row.stage is not Stage.NONE]


def state_name(state: State) -> str:
    return f"{state[0].__name__}, {state[1]}" if state not in (IDLE, DEGRADED) else str(state[1])


def course() -> str:
    rows = []
    for state, row in under_way():
        then = [(state[0], to) if isinstance(to, Phase) else to for to in row.then]
        assert row.failure is not None
        ends = (FAILURES[row.failure], CANCELLATIONS[row.cancel])
        rows.append([state_name(state), "; ".join(map(state_name, then)), *ends])
    return table(["state", "success leads to", "a failure leads to", "a cancellation leads to"], rows)


def restarts() -> str:
    rows = [
        [state_name(state), RESTARTS[row.restart], "the same" if row.boot is row.restart else RESTARTS[row.boot]]
        for state, row in under_way()
    ]
    return table(["state", "same boot", "another boot"], rows)


def duration(seconds: float) -> str:
    return f"{seconds / 3600:g} h" if seconds >= 3600 else f"{seconds / 60:g} min"


# The disruption policy


def entry(actions: tuple[Action, ...] | ByContent) -> str:
    if isinstance(actions, ByContent):
        return f"{actions.summary} (a rule decides)"
    return ", ".join(f"{action.type} {action.unit}".strip() for action in actions)


def policy() -> str:
    rows: list[list[str]] = []
    for domain in DOMAINS:
        rows += [[domain.name, f"path {code(key)}", entry(actions)] for key, actions in domain.files.items()]
        rows += [[domain.name, f"unit {code(key)}", entry(actions)] for key, actions in domain.units.items()]
        rows += [[domain.name, f"field {code(key)}", entry(rule)] for key, rule in domain.fields.items()]
        if domain.sshkey:
            rows.append([domain.name, f"{code(SSHKEY)} (every change to a user)", entry(domain.sshkey)])
    rows.append(["everything else", "unlisted", "Drain, Reboot"])
    return table(["area", "entry", "actions"], rows)


def recommended() -> str:
    found = with_rules(parse_policy(RECOMMENDED.read_bytes()))
    paths: dict[str, list[str]] = {}
    for each in (*found.files.values(), *found.patterns.values(), *found.units.values()):
        paths.setdefault(entry(ByContent(each.summary) if each.rule else each.actions), []).append(code(each.key))
    return table(
        ["paths and units", "actions"], [[", ".join(sorted(keys)), actions] for actions, keys in paths.items()]
    )


def sysctl_keys() -> str:
    groups: dict[str, list[str]] = {}
    for name in sorted(sysctl.AT_ONCE):
        above, _, key = name.rpartition("/")
        groups.setdefault(above.replace("/", "."), []).append(code(key))
    rows = [[code(above), ", ".join(keys)] for above, keys in groups.items()]
    return table(["below", "keys"], [*rows, [code("user"), f"all that begin with {code('max_')}"]])


def checks() -> str:
    rows = []
    for domain in DOMAINS:
        paths = dict.fromkeys([*domain.contents, *domain.checkers])
        how = {path: ["its own parser"] * (path in domain.contents) for path in paths}
        for path, checker in domain.checkers.items():
            how[path].append(f"{code(checker)} of the host")
        groups: dict[str, list[str]] = {}
        for path, ways in how.items():
            groups.setdefault(" and ".join(ways), []).append(path)
        rows += [[domain.name, shortened(found), way] for way, found in groups.items()]
    return table(["area", "paths", "checked with"], rows)


def shortened(paths: Sequence[str]) -> str:
    if len(paths) > 4:  # one for each type of unit
        return f"{code(paths[0])}, the other types of unit, {code(paths[-1])}"
    return ", ".join(code(path) for path in paths)


def health() -> str:
    rows = [
        [
            code(check.unit),
            f"accepts connections on {code(check.path)}"
            if isinstance(check, SocketHealth)
            else "is a healthy voter of its cluster"
            if isinstance(check, MemberHealth)
            else f"{code(check.url)} answers with 200",
        ]
        for domain in DOMAINS
        for check in domain.health
    ]
    return table(["unit", "is well if it"], rows)


def unit_types() -> str:
    """A row for each set of types with the same steps."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, found in TYPES.items():
        steps = (found.leaves, found.masked, found.restart, found.along)
        recommended = f"Drain, Reboot: {found.only_at_boot}" if found.only_at_boot else "start or stop it"
        groups.setdefault((*("; ".join(several) for several in steps), recommended), []).append(name)
    head = [
        *("type", "its file leaves", "it is masked", "its entry requests a restart", "another unit takes it down"),
        "it is new, enabled or disabled, by the recommended policy",
    ]
    return table(head, [[", ".join(names), *cells] for cells, names in groups.items()])


# Output of the command line


def ran(*words: str) -> str:
    """The output of a command into a pipe, as a code block. Paths are those of docs/examples."""
    printed = io.StringIO()
    places = [str(EXAMPLES / word) if (EXAMPLES / word).is_file() else word for word in words]
    with contextlib.redirect_stdout(printed):
        status = cli(places)
    if status != 0:
        raise SystemExit(f"nodeagent {' '.join(words)}: exit status {status}")
    return indented(f"$ nodeagent {' '.join(words)}\n{printed.getvalue()}")


def indented(text: str) -> str:
    return textwrap.indent(text.rstrip(), "    ")


def plan() -> str:
    return ran("plan", "--from", "worker-1.yaml", "--to", "worker-2.yaml")


def plan_picture() -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        cli(["plan", "--from", str(EXAMPLES / "worker-1.yaml"), "--to", str(EXAMPLES / "worker-2.yaml"), "--json"])
    picture: str = plan_figure.plan(printed.getvalue())
    return picture


def of_overview(name: str) -> str:
    """A part of docs/index.md, with its links as they are from the top of the repository."""
    text = (ROOT / "docs/index.md").read_text()
    part = re.search(rf"<!-- begin shared: {name} -->\n(.*?)<!-- end shared: {name} -->", text, re.DOTALL)
    assert part is not None
    linked = re.sub(r"\]\((?!https?://|#)", "](docs/", part.group(1).strip())
    return re.sub(r"docs/\.\./", "", linked)


def plan_with_policy() -> str:
    return ran("plan", "--from", "worker-1.yaml", "--to", "worker-2.yaml", "--policy", "policy.yaml")


def explain() -> str:
    return ran("explain", "--policy", "policy.yaml", "/etc/containers/registries.conf")


def example_policy() -> str:
    return indented((EXAMPLES / "policy.yaml").read_text())


# Reference


def commands() -> str:
    """A table of the arguments of each command, of those that have subcommands for each of these. Commands of a feature
    are below its heading."""
    parsers = list(answers.leaves("nodeagent", build_parser()))
    parts: list[str] = []
    for feature, door in doors().items():
        begins = tuple(f"nodeagent {listed.words} " for listed in feature_commands(feature))
        own = {name: parser for name, parser in parsers if f"{name} ".startswith(begins)}
        if own:
            parts += [f"## {door.title}", about_feature(door), *(command(name, own[name]) for name in own)]
            parsers = [(name, parser) for name, parser in parsers if name not in own]
    return "\n\n".join([*(command(name, parser) for name, parser in parsers), *parts])


def command(name: str, parser: argparse.ArgumentParser) -> str:
    expand = parser._get_formatter()._expand_help
    plain = [a for a in parser._actions if a.dest != "help" and not isinstance(a, argparse._SubParsersAction)]
    rows = [[argument(action), expand(action)] for action in plain]
    parts = [f"### {name}", parser.description or "", table(["argument", "meaning"], rows) if rows else ""]
    return "\n\n".join(part for part in parts if part)


def argument(action: argparse.Action) -> str:
    value = action.metavar or action.dest.upper()
    # Python-Markdown shows the escape of a pipe in the code of a table.
    value = " ".join(value) if isinstance(value, tuple) else value.replace("|", " or ")
    if action.nargs == 0 or not action.option_strings:
        value = "" if action.option_strings else value
    names = ", ".join(action.option_strings)
    return code(" ".join(part for part in (names, value) if part))


def settings() -> str:
    """A table of the settings of the base, and one for each feature that has some."""
    about = {**explained(Settings, "")}
    for name, kind in get_type_hints(Settings).items():
        if isinstance(kind, type) and issubclass(kind, Struct):
            about |= explained(kind, f"{name}.")
    tables = []
    features: dict[str, Any] = {}
    for door in doors().values():
        types: dict[str, Any] = {}
        for part in door.settings:
            types |= part_keys(part)
            about |= explained(part, f"{part.group}.".lstrip("."))
        features |= types
        if types:
            tables.append(f"## {door.title}\n\n{about_feature(door)}\n\n{settings_table(types, about)}")
    base = {key: kind for key, kind in keys().items() if key not in features}
    return "\n\n".join([settings_table(base, about), *tables])


def settings_table(types: Mapping[str, Any], about: Mapping[str, str]) -> str:
    values = flatten(Settings())
    rows = [[code(key), shown(values[key]), bounds(kind), about[key]] for key, kind in types.items()]
    return table(["setting", "default", "allowed", "what, and why this default"], rows)


def about_feature(door: Door) -> str:
    return f"See [{door.title}](../{door.page})."


def explained(struct: type[Struct], prefix: str) -> dict[str, str]:
    """The paragraphs of the docstring that begin with a name in double backquotes."""
    found: dict[str, str] = {}
    for paragraph in inspect.cleandoc(struct.__doc__ or "").split("\n\n"):
        if named := re.match(r"``(\w+)``: (.*)", paragraph, re.DOTALL):
            text = re.sub(r"``(.+?)``", r"`\1`", " ".join(named.group(2).split()))
            found[prefix + named.group(1)] = text[0].upper() + text[1:]
    return found


def shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float | int) else code(str(value) or '""')


def bounds(kind: Any) -> str:
    if kind is bool:
        return "true, false"
    if get_origin(kind) is Literal:
        return ", ".join(get_args(kind))
    if get_origin(kind) is tuple:
        return f"a list of {get_args(get_args(kind)[0])[1].description}"
    base, meta = get_args(kind)
    if base is float:
        return f"{meta.ge} to {meta.le} s"
    if base is int:
        return f"{meta.ge} to {meta.le} {meta.description.rpartition(' of ')[2] if meta.description else 'MiB'}"
    if meta.description:
        return str(meta.description)
    return {r"^/[^\x00-\x1f]*$": "a path", r"^(/[^\x00-\x1f]*)?$": 'a path, or ""'}.get(meta.pattern, "a host name")


def reasons() -> str:
    """A heading for each reason, so that each has an anchor. The groups are the comments in the class ``Reason``, and
    the features."""
    parts = []
    for line in inspect.getsource(Reason).splitlines():
        if comment := re.fullmatch(r" {4}# (?!fmt: )(.+)", line):
            parts.append(f"## {comment.group(1)}")
        elif name := re.match(r" {4}([A-Z_]+) = ", line):
            parts.append(reason_section(Reason[name.group(1)]))
    for door in doors().values():
        if door.reasons is not None:
            parts += [f"## {door.title}", about_feature(door), *map(reason_section, door.reasons)]
    return "\n\n".join(parts)


def reason_section(reason: AnyReason) -> str:
    return f"### {reason}\n\n{paragraph(reason.meaning)}\n\n{paragraph(f'**What to do:** {reason.hint}.')}"


def paragraph(sentence: str) -> str:
    """A sentence of Markdown, in which words such as ``unit@.service`` and ``<name>`` stay as they are."""
    text = re.sub(r"([*_<>\[\]`])", r"\\\1", sentence).replace(r"\*\*What to do:\*\*", "**What to do:**")
    return "\n".join(textwrap.wrap(text, 100, break_on_hyphens=False, break_long_words=False))


def messages() -> str:
    """The entries of the base, in the order of its catalog, then those of each feature."""
    parts = [messages_table(CATALOG)]
    for name, door in doors().items():
        if door.events:
            parts += [f"### {door.title}", about_feature(door), messages_table(feature_catalog(name))]
    return "\n\n".join(parts)


def feature_catalog(name: str) -> Path:
    word = name.replace("_", "-")
    return ROOT / f"nodeagent/features/{name}/tree/usr/lib/systemd/catalog/nodeagent-{word}.catalog"


def messages_table(catalog: Path) -> str:
    priorities = message_ids()
    rows = [
        [re.sub(r"@NODEAGENT_(\w+)@", r"*\1*", subject), PRIORITIES[priorities[ident]], code(ident)]
        for ident, subject in re.findall(r"^-- ([0-9a-f]{32})\nSubject: (.+)$", catalog.read_text(), re.MULTILINE)
    ]
    return table(["entry", "priority", "MESSAGE_ID"], rows)


# The polkit action below org.nodeagent.agent1, and what the declaration of a member does not contain.
DBUS: Mapping[str, tuple[str, str]] = {
    "Apply": (
        "apply",
        "Options: `max_disruption` `s` (none, reload, restart, drain, reboot; more is refused, and no reboot follows a "
        "failed action below `reboot`), `planned_disruption` `s` (that of a plan that was confirmed; more is refused), "
        + "".join(f"`{name}` `s` ({form}), " for option in feature_options() for name, form in option.takes)
        + "`no_reboot` `b`, `boot_staged` `b`, "
        "`strict` `b` (reject entries of units that exist nowhere), `remove` `t` (the number of entries that go, if "
        "these are most), `allow_lockout` `b`.",
    ),
    "Plan": (
        "verify, diff for `diff`, and apply for `stage`",
        'Returns the JSON of `nodeagent plan FILE --json`; `""` is the desired config. '
        "Options: `diff` `b` adds the changed texts; `stage` `b` "
        "stages the OS of the config, locked, which takes minutes and ends with the connection of the caller. Without "
        "`stage`, nothing is changed. `allow_lockout` `b` as for `Apply`; with `rollback` `b`, the config is the "
        "one to which `Rollback` returns. "
        "With `problems` `b`, an error is in the answer, as `error` with `reason`, "
        "`message`, `hint` and all `problems`.",
    ),
    "Cancel": (
        "cancel",
        "Returns the JSON of `nodeagent cancel --json`, without the end of the update, which `UpdateFinished` reports. "
        "With the effect `staging`, the staging for a plan has ended, and nothing is reported.",
    ),
    "Reboot": (
        "reboot",
        "Continues an update whose reboot was held back. Returns the JSON of `nodeagent reboot --json`; its `config` "
        "is empty if there is none.",
    ),
    "Rollback": ("rollback", "Returns the name of the config. Options as for `Apply`, without `strict` and `remove`."),
    "Verify": ("verify", "Returns the JSON of `nodeagent verify --json`."),
    "VerifyDiff": ("diff", "Returns the JSON of `nodeagent verify --diff --json`."),
    "Config": (
        "verify, or read-secrets for `secrets`",
        "`which` is `current`, `desired` or `named`. Options: `name` `s` (for `named`), `secrets` `b`; others are "
        "refused. Returns the JSON of `nodeagent config show --json`: values that may be secrets are hidden "
        "without `secrets`.",
    ),
    "History": ("", "Returns the JSON of `nodeagent history --json`."),
    "Update": (
        "",
        'Returns [one update](history.md) with its plan and its course, also the one under way. `""` is the newest.',
    ),
    "Reload": ("reload", "Reads the settings again."),
    "UpdateFinished": (
        "",
        "Signal. The entry is the JSON as in `nodeagent history --json`. Emitted once for each update or request that "
        "ended, also if the history has no entry. With `tried_again`, the config was requested again in between: "
        "another update to it follows, with a signal of its own.",
    ),
}


def dbus() -> str:
    nothing: Any = None
    interface = Manager(nothing, nothing, nothing).interface()
    declared = {
        **{name: (method.takes, method.gives, method.arguments) for name, method in interface.methods.items()},
        **{name: ("", signal.signature, signal.arguments) for name, signal in interface.signals.items()},
    }
    of_features = [method for door in doors().values() for method in door.methods]
    added = {method.name: (method.actions or method.action, method.about) for method in of_features}
    notes = {**DBUS, **added}
    rows = []
    for name, (takes, gives, names) in declared.items():
        taken, given = complete_types(takes), complete_types(gives)
        typed = [f"{one} `{kind}`" for kind, one in zip([*taken, *given], names, strict=True)]
        rows.append([code(name), ", ".join(typed[: len(taken)]), ", ".join(typed[len(taken) :]), *notes[name]])
    return table(["member", "takes", "gives", "polkit action", "notes"], rows)


def properties() -> str:
    rows = [[code(name), code(found.signature), found.about] for name, found in typed_properties().items()]
    return table(["property", "type", "content"], rows)


def metrics() -> str:
    """The metrics of the base, then those of each feature."""
    of_features = {
        door.title: [family for view in door.status for family in (*view.families, *view.counter_families)]
        for door in doors().values()
    }
    own = [family for listed in of_features.values() for family in listed]
    parts = [metrics_table(family for family in families() if family not in own)]
    for door in doors().values():
        if listed := of_features[door.title]:
            parts += [f"### {door.title}", about_feature(door), metrics_table(listed)]
    return "\n\n".join(parts)


def metrics_table(listed: Iterable[Family]) -> str:
    rows = [
        [code(f.name), f.kind.value, ", ".join(map(code, f.labels)), f.help, "yes" if f in HISTORY else ""]
        for f in listed
    ]
    return table(["metric", "type", "labels", "what", "after a restart"], rows)


PARTS: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "docs/development/changes.md": {"changes": lists.changes},
    "docs/development/cluster-failures.md": {"failures": lists.cluster_failures, "files": lists.cluster_files},
    "docs/development/mistakes.md": {
        "mistakes": lists.mistakes,
        "warnings": functools.partial(lists.other_mistakes, "tests/cli/test_mistakes.py"),
        "on-the-host": functools.partial(lists.other_mistakes, "integration/"),
        "command-line": functools.partial(lists.other_mistakes, "tests/cli/test_main.py", "tests/features/"),
    },
    "docs/development/regressions.md": {"regressions": findings.page},
    "README.md": {
        "plan": plan,
        **{name: functools.partial(of_overview, name) for name in ("what", "proof", "scope")},
    },
    "docs/explanation/plans.md": {"example-plan": plan_with_policy, "sysctl": sysctl_keys},
    "docs/reference/commands.md": {"commands": commands},
    "docs/reference/dbus.md": {"dbus": dbus, "properties": properties},
    "docs/reference/json.md": {"answers": answers.page},
    "docs/reference/journal.md": {"messages": messages},
    "docs/reference/metrics.md": {"metrics": metrics},
    "docs/reference/phases.md": {"phases": phases},
    "docs/explanation/state-machine.md": {"course": course, "restarts": restarts},
    "docs/reference/policy.md": {"policy": policy, "recommended": recommended, "checks": checks, "health": health},
    "docs/reference/reasons.md": {"reasons": reasons},
    "docs/reference/settings.md": {"settings": settings},
    "docs/reference/unit-types.md": {"unit-types": unit_types},
    "docs/usage/avoid-a-reboot.md": {"example-policy": example_policy, "explain": explain},
}


# From top to bottom, in every figure of a leg.
ORDER = (
    *(Phase.WRITING, Phase.ACTING, Phase.REVERTING, Phase.STAGING, Phase.LEASING, Phase.DRAINING, Phase.REBOOTING),
    *(Phase.VERIFYING, Phase.RELEASING),
)
LEGS: Mapping[type[Leg], str] = {
    Prepare: "Prepare: until the first write, an update can be given up",
    Apply: "Apply: after the first write, an update is completed or reverted",
    Fallback: "Fallback: at most one soft and one full reboot that were not planned",
    Revert: "Revert: the previous config is restored and verified",
}


def leg(kind: type[Leg]) -> str:
    states = {
        (of.__name__, str(phase)): [(to.__name__, str(end)) for to, end in following((of, phase))]
        for of, phase in COURSE
    }
    picture: str = figures.legs(LEGS[kind], kind.__name__, list(map(str, ORDER)), states)
    return picture


FIGURES: Mapping[str, Callable[[], str]] = {
    **{f"docs/explanation/leg-{kind.__name__.lower()}.svg": functools.partial(leg, kind) for kind in LEGS},
    "docs/development/architecture.svg": figures.architecture,
    "docs/explanation/timeline.svg": figures.timeline,
    "docs/plan.svg": plan_picture,
    "docs/research/fleet.svg": growth_figure.growth,
    "docs/research/rollout.svg": figures.rollout,
}


def render(text: str, name: str, content: str) -> str:
    begin, end = f"<!-- begin generated: {name} -->", f"<!-- end generated: {name} -->"
    pattern = re.compile(re.escape(begin) + r".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"no place for {name}")
    return pattern.sub(lambda _: f"{begin}\n\n{content}\n\n{end}", text)  # Markdown wants the empty lines


def main(arguments: list[str]) -> int:
    stale = []
    for file, parts in PARTS.items():
        path = ROOT / file
        before = after = path.read_text()
        for name, make in parts.items():
            after = render(after, name, make())
        if after != before:
            stale.append(file)
            if "--check" not in arguments:
                path.write_text(after)
    for file, draw in FIGURES.items():
        path = ROOT / file
        if not path.exists() or path.read_text() != draw():
            stale.append(file)
            if "--check" not in arguments:
                path.write_text(draw())
    sys.stdout.write(f"docs: {'stale: ' + ', '.join(stale) if stale else 'up to date'}\n")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
