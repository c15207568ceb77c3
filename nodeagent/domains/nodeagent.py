# SPDX-License-Identifier: Apache-2.0
"""nodeagent's own configuration and its requirements: its unit, the bus, and the first targets of a boot.

If a config breaks one of these, the agent can neither verify nor revert it. ``agent.own_config`` checks settings and
policy, merged with those of the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final
from xml.parsers import expat

from nodeagent.core.config.file_tree import Directory, RegularFile, SymbolicLink, expand
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.units import OWN_UNIT
from nodeagent.core.plan.domain import Domain
from nodeagent.core.plan.policy import DAEMON_RELOAD, NONE, reload, restart
from nodeagent.core.plan.sides import Sides
from nodeagent.domains import own_units
from nodeagent.errors import Problem
from nodeagent.installed import trees

SETTINGS: Final = "/etc/nodeagent/config.d"
POLICY: Final = "/etc/nodeagent/policy.yaml"
POLICY_DIR: Final = "/etc/nodeagent/policy.d"
BUS_NAME: Final = "org.nodeagent.Agent1"

# Those of features.
TREES: Final = trees()
# Names that nodeagent owns or calls as root.
_NEEDED_NAMES: Final = (BUS_NAME, "org.freedesktop.DBus", "org.freedesktop.login1", "org.freedesktop.systemd1")
# Attributes of a rule that choose no particular service, path or member: dbus-daemon(1).
_NOT_PARTICULAR: Final = frozenset({"log", "max_fds", "min_fds", "receive_type", "send_broadcast", "send_type"})
_BUS_DIRS: Final = ("/etc/dbus-1/system.d/", "/etc/dbus-1/system.conf", "/etc/dbus-1/system-local.conf")
_POLKIT_ACTIONS: Final = "/etc/polkit-1/actions"


class NodeagentDomain(Domain):
    """The needs of the agent itself. All paths are compared, because any unit may break it."""

    def validate(self, sides: Sides, changed: Mapping[str, bytes]) -> Iterator[Problem]:
        yield from _problems_of(sides.old, sides.new)
        yield from super().validate(sides, changed)


DOMAIN: Final = NodeagentDomain(
    name="nodeagent's own settings, policy and unit",
    files={
        SETTINGS: (reload(OWN_UNIT),),
        # Read for each plan.
        POLICY: (NONE,),
        POLICY_DIR: (NONE,),
        # Read for each update.
        **{tree.path: (NONE,) for tree in TREES},
    },
    units={OWN_UNIT: (DAEMON_RELOAD, restart(OWN_UNIT))},
    joined=(OWN_UNIT,),
)


def _problems_of(old: MachineConfig, new: MachineConfig) -> Iterator[Problem]:
    """Yield the problems of ``new`` that would prevent the agent from starting, or clients from reaching it.

    Unchanged contents are not checked.
    """
    had = expand(old)
    for path, node in expand(new).items():
        # A directory has no content to check.
        if had.get(path) != node and not isinstance(node, Directory):
            yield from (Problem(path, message) for check in _checks_of(path) for message in check(node))
    for token in new.kernel_arguments:
        if token not in old.kernel_arguments and (message := own_units.kernel_argument(token)):
            yield Problem("spec.kernelArguments", f"{token} {message}")


def _checks_of(path: str) -> Iterator[own_units.Check]:
    directory, _, name = path.rpartition("/")
    for tree in TREES:
        if path.startswith(f"{tree.path}/"):
            yield partial(tree.problems, path.removeprefix(f"{tree.path}/"))
    if directory == _POLKIT_ACTIONS and name.endswith(".policy"):
        yield _polkit_policy
    if path.startswith(_BUS_DIRS):
        yield _bus_policy
    yield from own_units.check_of(path)


def _bus_policy(node: RegularFile | SymbolicLink) -> Iterator[str]:
    """Yield the problems of a policy that the bus rejects, or that denies nodeagent its name."""
    if isinstance(node, SymbolicLink):
        yield "would remove the policy of the bus"
        return
    problems: list[str] = []
    decisive = False

    def begin(element: str, attributes: dict[str, str]) -> None:
        nonlocal decisive
        if element == "policy":
            # No other rule overrides these for root.
            decisive = attributes.get("context") == "mandatory" or attributes.get("user") in ("root", "0")
        elif element == "deny" and any(
            _covers(attributes.get(name, "")) for name in ("own", "own_prefix", "send_destination")
        ):
            problems.append(f"would deny {BUS_NAME} to nodeagent or its clients")
        elif element == "deny" and decisive and _denies_needed(attributes):
            problems.append("would keep nodeagent from the services that it needs")

    yield from _xml_problems(node.content, "busconfig", begin)
    yield from dict.fromkeys(problems)


def _denies_needed(rule: Mapping[str, str]) -> bool:
    """Return whether a rule for root denies everything, or a service that nodeagent calls."""
    if any(rule.get(name) in _NEEDED_NAMES for name in ("send_destination", "receive_sender")):
        return True
    if any(rule.get(name) in ("root", "0") for name in ("user", "group")):
        return True
    return all(value == "*" for name, value in rule.items() if name not in _NOT_PARTICULAR)


def _polkit_policy(node: RegularFile | SymbolicLink) -> Iterator[str]:
    """Yield the problems for which polkit would not read the actions of this file."""
    if isinstance(node, RegularFile):
        yield from _xml_problems(node.content, "policyconfig", lambda _element, _attributes: None)


def _xml_problems(content: bytes, root: str, begin: Callable[[str, dict[str, str]], None]) -> Iterator[str]:
    """Yield the problems of an XML document; ``begin`` gets each element."""
    roots: list[str] = []
    entities: list[str] = []

    def begin_element(element: str, attributes: dict[str, str]) -> None:
        if not roots:
            roots.append(element)
        begin(element, attributes)

    parser = expat.ParserCreate()
    parser.StartElementHandler = begin_element
    # Nested entities could expand to gigabytes, in the program as well as here.
    parser.EntityDeclHandler = lambda *_: entities.append("must not declare entities")
    try:
        # expat reads no external entity: for that it would need a handler.
        parser.Parse(content, True)
    except expat.ExpatError as error:
        yield f"line {error.lineno}: {expat.ErrorString(error.code)}"
        return
    if roots != [root]:
        yield f"must be a {root}"
    yield from dict.fromkeys(entities)


def _covers(name: str) -> bool:
    return bool(name) and (name == BUS_NAME or BUS_NAME.startswith(f"{name}."))
