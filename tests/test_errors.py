# SPDX-License-Identifier: Apache-2.0
"""Each place that makes an error names a reason, and the class fits the kind of that reason."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import nodeagent
from nodeagent.errors import AgentError, error_of
from nodeagent.kinds import AnyReason, Kind
from nodeagent.reasons import known_reasons, reason_of
from tests.support import removed

ROOT = Path(nodeagent.__file__).parent
MODULES = sorted(
    ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
    for path in ROOT.rglob("*.py")
    if path.name not in ("__init__.py", "__main__.py")
)


def made(module: ModuleType, tree: ast.Module) -> Iterator[tuple[ast.Call, type[AgentError]]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            kind = getattr(module, node.func.id, None)
            if isinstance(kind, type) and issubclass(kind, AgentError):
                yield node, kind


def reasons(module: ModuleType, call: ast.Call, kind: type[AgentError]) -> Iterator[AnyReason]:
    """Yield the reasons that the text names. One that is known only when it runs is checked by ``conftest.py``."""
    given = next((keyword.value for keyword in call.keywords if keyword.arg == "reason"), None)
    if given is None:
        yield kind.default_reason
        return
    for one in (given.body, given.orelse) if isinstance(given, ast.IfExp) else (given,):
        try:
            found = eval(ast.unparse(one), vars(module))
        except (NameError, AttributeError):
            continue
        if isinstance(found, AnyReason):
            yield found


@pytest.mark.parametrize("name", MODULES)
def test_the_class_of_an_error_fits_its_reason(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__file__ is not None
    tree = ast.parse(Path(module.__file__).read_text())
    wrong = [
        f"line {call.lineno}: {kind.__name__} with {reason}, which is {reason.kind.name}"
        for call, kind in made(module, tree)
        for reason in reasons(module, call, kind)
        if reason.kind not in kind.kinds
    ]
    assert not wrong


def test_the_class_follows_from_the_reason() -> None:
    for reason in known_reasons():
        error = error_of(reason, "x")
        assert (error.exit_code, reason.kind in error.kinds) == (reason.kind.exit_code, True)
    assert error_of(reason_of("OfANewerAgent"), "x").exit_code == Kind.FAULT.exit_code


def _classes(kind: type[AgentError]) -> Iterator[type[AgentError]]:
    # Stand-ins of other tests have classes of their own.
    if kind.__module__.startswith("nodeagent."):
        yield kind
        for one in kind.__subclasses__():
            yield from _classes(one)


def test_each_class_fits_its_own_reason() -> None:
    for name in MODULES:
        importlib.import_module(name)
    wrong = [kind.__name__ for kind in _classes(AgentError) if kind.default_reason.kind not in kind.kinds]
    # The bases of errors of the bus and of the API server have no reason of their own.
    assert set(wrong) <= {"BusRefused", "BusRetryable", "BusUnreachable"}


def _caught(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        found: list[ast.expr] = []
        if isinstance(node, ast.ExceptHandler) and node.type is not None:
            found.append(node.type)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            found += node.args if name == "suppress" else node.args[1:] if name == "isinstance" else []
        # A union of classes, for isinstance().
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp):
            found.append(node.value)
        yield from (one.id for each in found for one in ast.walk(each) if isinstance(one, ast.Name))


def caught_below(package: str, *, but: str = " ") -> set[str]:
    """Return the names of what the modules below a package catch, without those whose names begin with ``but``."""
    caught: set[str] = set()
    for name in MODULES:
        if name.startswith(f"{package}.") and not name.startswith(but):
            module = importlib.import_module(name)
            assert module.__file__ is not None
            caught |= set(_caught(ast.parse(Path(module.__file__).read_text())))
    return caught


def classes_of_errors() -> set[str]:
    """Return the names of the classes of all modules."""
    for name in MODULES:
        importlib.import_module(name)
    return {kind.__name__ for kind in _classes(AgentError)}


def test_each_class_is_caught_somewhere() -> None:
    """Where no code catches a class, the reason of a plainer one is enough."""
    # These are caught by their bases, and differ in what they have beside a reason.
    uncaught = classes_of_errors() - caught_below("nodeagent") - removed.words("error")
    assert uncaught <= {"Gone", "QuorumRefused", "Rejected", "StoppedByUser"}, (
        "no code catches this class: raise error_of(reason, message) instead"
    )


# They read the output of other programs; errors.py takes the names of other hosts off a message of its own.
FOREIGN = {
    "nodeagent/errors.py",
    "nodeagent/host/checkers/sshd.py",
    "nodeagent/host/checkers/sudoers.py",
    "nodeagent/host/checkers/units.py",
    "nodeagent/features/rpmostree/client.py",
}


def test_no_cause_is_taken_apart() -> None:
    """A reason and its message are a ``Cause``, and a text of both is for readers only."""
    splits = re.compile(r"""(?:partition|split)\(["']: ["']""")
    found = {str(path.relative_to(ROOT.parent)) for path in ROOT.rglob("*.py") if splits.search(path.read_text())}
    assert found <= FOREIGN, "pass a Cause on instead of a text; output of other programs is a line of FOREIGN"
