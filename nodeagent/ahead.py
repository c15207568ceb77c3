"""What ``@dataclass`` generates, compiled when the package is built.

A dataclass writes the source of its methods and compiles it, again at every start: a quarter of the daemon's. The
package ships the outcome, found by that source, for every dataclass of nodeagent and of what it imports. What is not
there is compiled as ever, so this can be incomplete but never wrong.

    python -m nodeagent.ahead FILE      records
"""

from __future__ import annotations

import dataclasses
import marshal
import sys
from collections.abc import Callable

__all__ = ["FILE", "record", "use"]

FILE = "ahead.marshal"
"""Beside this module: a dict from source to marshalled code."""


def use() -> None:
    """For every dataclass from now on. Without the file, as in a wheel, nothing changes."""
    try:
        with open(__file__.rpartition("/")[0] + "/" + FILE, "rb") as file:  # noqa: PTH123 - pathlib takes longer to load
            known: dict[str, bytes] = marshal.load(file)  # noqa: S302 - of our own build
    except FileNotFoundError:
        return

    def run(source: str, *scopes: dict[str, object]) -> None:
        code = known.get(source)
        exec(source if code is None else marshal.loads(code), *scopes)  # noqa: S102, S302 - as dataclasses does

    _shadow(run)


def record(path: str) -> None:
    """Writes the file, by importing all of nodeagent. For a process that has imported next to nothing yet."""
    from importlib import import_module
    from pkgutil import walk_packages

    sources: dict[str, bytes] = {}

    def run(source: str, *scopes: dict[str, object]) -> None:
        code = compile(source, "<string>", "exec")
        sources[source] = marshal.dumps(code)
        exec(code, *scopes)  # noqa: S102

    _shadow(run)
    for module in walk_packages(import_module("nodeagent").__path__, "nodeagent."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    with open(path, "wb") as file:  # noqa: PTH123
        marshal.dump(sources, file)


def _shadow(run: Callable[..., None]) -> None:
    # Hides the builtin in that one module. Should it stop to call exec, nothing is gained, and nothing is lost.
    dataclasses.exec = run  # type: ignore[attr-defined]


if __name__ == "__main__":
    record(sys.argv[1])
