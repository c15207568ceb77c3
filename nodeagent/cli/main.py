# SPDX-License-Identifier: Apache-2.0
"""The command line. A command is one module with ``add_arguments(parser)`` and ``run(args) -> int``.

``COMMANDS`` lists them; the completion is generated from ``build_parser()``.
Only the module of the requested command is imported.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any, Final, NoReturn

from nodeagent import features
from nodeagent.cli import _io
from nodeagent.commands import Command
from nodeagent.errors import AgentError, InvalidInput
from nodeagent.reasons import Reason

_BASE: Final = (
    ("plan", "show what a config changes on this host, or from another config"),
    ("explain", "show the policy entry for a path or unit, or the remedy for a reason"),
    ("policy", "check a policy; print the recommended entries that avoid a reboot or a drain"),
    ("render", "merge MachineConfigs to one, as a cluster does for a pool"),
    ("apply", "make a MachineConfig the desired config"),
    ("cancel", "end the update under way, or take it back before its reboot"),
    ("reboot", "continue an update whose reboot was held back"),
    ("rollback", "return to the previous config, including the OS"),
    ("status", "show the state of this host, what it waits for, and what to do"),
    ("history", "list past updates, show one with its phases, or compare two"),
    ("logs", "show the journal of an update"),
    ("verify", "compare this host with its current config"),
    ("lease", "show the holder of the lease of this host"),
    ("etcd", "check whether a disruption of this host is safe for etcd"),
    ("fleet", "show rollout status of all pools, approve certificate requests"),
    ("config", "print the current or the desired MachineConfig"),
    ("settings", "show and check the settings of nodeagent"),
    ("daemon", "run the daemon; for nodeagent.service"),
    ("boot-complete", "wait until the update of this boot is verified; for nodeagent-boot-complete.service"),
    ("version", "show client and daemon versions"),
)

# Commands of the base without ``--json``.
_NO_JSON: Final = {
    "daemon": "the journal has what it reports, nodeagent status its state",
    "boot-complete": "a unit runs it, and reads the exit status",
}


def listed(base: Sequence[Command], added: Sequence[Command]) -> Sequence[Command]:
    """Return all commands. An added one follows the command that it names."""
    commands = list(base)
    for command in added:
        place = next((index for index, other in enumerate(commands, 1) if other.name == command.after), len(commands))
        commands.insert(place, command)
    return commands


def _help(name: str, words: str) -> str:
    return "; ".join((words, *(extension.help for extension in features.extensions(name))))


_OF_FEATURES: Final = [command for name in features.NAMES for command in features.commands(name)]
COMMANDS: Final = listed(
    [
        Command(name, _help(name, words), f"nodeagent.cli.{name.replace('-', '_')}", no_json=_NO_JSON.get(name, ""))
        for name, words in _BASE
    ],
    [command for command in _OF_FEATURES if not command.under],
)

NAMES: Final = frozenset(command.name for command in COMMANDS)

DESCRIPTION: Final = "Applies MachineConfigs to this host with the least disruption that is safe."
EXITS: Final = """exit status:
  0  done, or nothing to do
  1  nodeagent failed, or is degraded
  2  usage, or input that cannot be read or is invalid
  3  the change cannot be applied to a running host
  4  refused or waiting: a lease, a window or a check
  5  the daemon cannot be reached
  6  not confirmed at the prompt; nothing was changed
"""

# Commands of other programs, with the hint to print.
HABITS: Final = {
    "diff": "nodeagent plan --diff FILE shows what a config would change, nodeagent verify --diff what was changed",
    "undo": "nodeagent rollback returns to the previous config",
    "upgrade": "nodeagent apply FILE applies a config, its OS image included",
    "get": "nodeagent status shows the state, nodeagent config show the current config",
    "describe": "nodeagent status shows the state, nodeagent history show an update",
    "events": "nodeagent logs shows the journal, nodeagent history the updates",
    "doctor": "nodeagent selfcheck checks the installation",
}

# Options of other programs, with the hint to print.
FOREIGN: Final = {
    "-o": "--json gives one JSON object, where a command has it",
    "--output": "--json gives one JSON object, where a command has it",
    "-f": "name the file without an option: nodeagent apply FILE",
    "--filename": "name the file without an option: nodeagent apply FILE",
    "--diff": "nodeagent plan --diff FILE shows the changed lines",
    "--follow": "nodeagent status --watch follows the status, nodeagent logs --follow the journal of an update",
    "--since": "nodeagent history lists the updates with their times, and logs ID shows the journal of one",
    "-n": "nodeagent history --limit N lists so many updates",
    "--lines": "nodeagent history --limit N lists so many updates",
    "--dry-run": "nodeagent plan FILE shows what a config would change, and --dry-run of apply and rollback, too",
    "--force": "no check is skipped; nodeagent status names what an update waits for, and who can end that",
    "-w": "nodeagent status --watch follows the status; --wait of apply, rollback and reboot waits for the end",
}

# Similarity of a word and of the one that was meant.
NEAR: Final = 0.65

# As a shell reports SIGINT and SIGPIPE.
INTERRUPTED: Final = 128 + 2
PIPE_CLOSED: Final = 128 + 13


# The metavar of subcommands.
COMMAND: Final = "COMMAND"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        # argparse would print its usage and exit. The contract promises one line.
        if message.endswith(f": {COMMAND}"):
            message = f"{self.prog} needs a command: {_listed(_subcommands(self))}"
        raise InvalidInput(message, reason=Reason.USAGE, hint=f"{self.prog} --help")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices = list(action.choices or ())
        if choices and value not in choices:
            message = f"there is no {action.metavar or action.dest} {value!r}: {', '.join(map(str, choices))}"
            if isinstance(action, argparse._SubParsersAction):
                message = f"{self.prog} has no command {value!r}, only {_listed(choices)}"
            hint = _did_you_mean(str(value), choices) or f"{self.prog} --help"
            raise InvalidInput(message, reason=Reason.USAGE, hint=hint)


def _listed(names: Iterable[str]) -> str:
    *others, last = map(str, names)
    return f"{', '.join(others)} and {last}" if others else last


def build_parser(commands: Collection[str] = NAMES) -> argparse.ArgumentParser:
    """Return the parser. It knows the options of ``commands``, whose modules are imported, and the names of all."""
    parser = _Parser(
        prog="nodeagent",
        description=DESCRIPTION,
        epilog=EXITS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        # An abbreviation would stop working when an option with the same beginning is added.
        allow_abbrev=False,
    )
    # ``_familiar`` replaces it by the command before it is parsed.
    parser.add_argument("--version", action="store_true", help="show the version, as nodeagent version")
    parsers = parser.add_subparsers(title="commands", metavar=COMMAND, dest="command", required=True)
    for command in COMMANDS:
        sub = parsers.add_parser(command.name, help=command.help, description=command.about, allow_abbrev=False)
        if command.name in commands:
            module = import_module(command.module)
            module.add_arguments(sub)
            extensions = [import_module(extension.module) for extension in features.extensions(command.name)]
            for extension in extensions:
                extension.add_arguments(sub)
            sub.set_defaults(run=partial(_run_extended, [*extensions, module]))
            _add_subcommands(sub, [added for added in _OF_FEATURES if added.under == command.name])
    return parser


def _run_extended(modules: Sequence[ModuleType], args: argparse.Namespace) -> int:
    """Return the exit status of the first module that these arguments are for. The last one is the command."""
    for module in modules:
        status: int | None = module.run(args)
        if status is not None:
            return status
    raise AssertionError("a command has an exit status")


def _add_subcommands(parser: argparse.ArgumentParser, added: Sequence[Command]) -> None:
    # argparse has no public access to the arguments.
    parsers = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for command in sorted(added, key=lambda command: command.after != command.under):
        module = import_module(command.module)
        sub = parsers[0].add_parser(command.name, help=command.help, description=command.about)
        module.add_arguments(sub)
        sub.set_defaults(run=module.run)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status. Never raises, never prints a traceback."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(words)
    except AgentError as error:
        return _fail(error, words)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of the output, such as head, has ended.
        _io.discard(sys.stdout)
        return PIPE_CLOSED
    except OSError as error:
        # On a full disk, the rest of the output would fail once more at the exit.
        _io.discard(sys.stdout)
        return _fail(
            AgentError(f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")), words
        )
    except Exception as error:
        # A bug is reported on one line, too.
        if os.environ.get("NODEAGENT_TRACEBACK"):
            raise
        hint = "this is a bug in nodeagent; NODEAGENT_TRACEBACK=1 shows where"
        return _fail(AgentError(f"{type(error).__name__}: {error}", reason=Reason.INTERNAL_ERROR, hint=hint), words)


def _run(words: list[str]) -> int:
    words = _familiar(words)
    if words and not words[0].startswith("-") and words[0] not in NAMES:
        raise _unknown_command(words[0])
    try:
        parser = build_parser(NAMES & {*words[:1]})
        args, extra = parser.parse_known_args(words)
        if extra:
            raise _unknown_argument(words, extra, parser)
        status: int = args.run(args)
    except SystemExit as stop:
        # argparse exits after --help.
        status = stop.code if isinstance(stop.code, int) else 0
    _io.flush()
    return status


def _familiar(words: list[str]) -> list[str]:
    """Accept ``--version``, ``-V`` and ``help COMMAND``, as other programs do."""
    match words:
        case ["--version" | "-V", *more]:
            return ["version", *more]
        case ["help", command, *more] if command in NAMES:
            return [command, *more, "--help"]
        case ["help"]:
            return ["--help"]
        case ["help", command, *_]:
            raise _unknown_command(command)
        case _:
            return words


def _did_you_mean(word: str, candidates: Iterable[str], prefix: str = "") -> str:
    close = get_close_matches(word, sorted(candidates), 1, NEAR)
    return f"did you mean {prefix}{close[0]}?" if close else ""


def _unknown_command(word: str) -> InvalidInput:
    meant = _did_you_mean(word, NAMES, "nodeagent ")
    hint = HABITS.get(word) or meant or "nodeagent --help lists the commands"
    return InvalidInput(f"there is no command {word!r}", reason=Reason.USAGE, hint=hint)


def _unknown_argument(words: Sequence[str], extra: Sequence[str], parser: argparse.ArgumentParser) -> InvalidInput:
    names = [word.partition("=")[0] for word in extra if word.startswith("-")]
    # Another command of the same group may have the option.
    options = _options(parser) - {*names}
    foreign = {**FOREIGN, "--json": _no_json(words)}
    hints = [hint for name in names if (hint := foreign.get(name) or _did_you_mean(name, options))]
    hints = [*dict.fromkeys(hints), f"{_command_of(words, parser)} --help"]
    return InvalidInput(f"unrecognized arguments: {' '.join(extra)}", reason=Reason.USAGE, hint="\n".join(hints))


def _no_json(words: Sequence[str]) -> str:
    """Return a hint why the command of the line has no ``--json``."""
    named = [
        command
        for command in (*COMMANDS, *_OF_FEATURES)
        if command.words.split() == [*words][: len(command.words.split())]
    ]
    return next((f"there is no --json: {command.no_json}" for command in named if command.no_json), "")


def _command_of(words: Sequence[str], parser: argparse.ArgumentParser) -> str:
    """Return the command and the subcommand of the line, as in ``nodeagent settings check``."""
    for word in words:
        parser = _subcommands(parser).get(word, parser)
    return parser.prog


def _options(parser: argparse.ArgumentParser) -> set[str]:
    """Return the options of the commands whose modules are imported."""
    options = {option for action in parser._actions for option in action.option_strings}
    return options.union(*map(_options, _subcommands(parser).values()))


def _subcommands(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    # argparse has no public access to the arguments.
    choices = (action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return next(choices, {})


def _fail(error: AgentError, words: Sequence[str]) -> int:
    try:
        # The words decide, because the error may be one of the parser.
        _io.print_error(error, as_json="--json" in words, words=words)
    except OSError:
        # Without a reader of stderr, the exit status is all that is left.
        _io.discard(sys.stderr)
    return error.exit_code


def entry() -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        # A path that the encoding of the terminal cannot show must not cause a failure.
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(main())
