"""The policy files of a host: the one that the setting ``policy`` names, and the drop-ins in a directory beside it.

``/etc/nodeagent/policy.yaml`` has its drop-ins in ``/etc/nodeagent/policy.d``. They are merged key by key over the
file, in the order of their names: the last one wins.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Final

from nodeagent.core.plan.policy import Policy, merge

# The entries that the setting recommended_policy adds, below those of the admin. It comes with the package.
RECOMMENDED: Final = "/usr/lib/nodeagent/policy-recommended.yaml"

# An object that an API server accepts has at most 1.5 MB.
MAX_BYTES: Final = 2 * 1024 * 1024
MAX_DROP_INS: Final = 100


def drop_in_directory(policy: str) -> str:
    """Return the directory of the drop-ins of the file ``policy``: its name with another ending."""
    directory, _, name = policy.rpartition("/")
    return f"{directory}/{name.rpartition('.')[0] or name}.d"


def is_drop_in(name: str) -> bool:
    """Return whether a file of this name in the directory counts."""
    # Editors and package managers leave hidden files and files with other endings.
    return name.endswith(".yaml") and not name.startswith(".")


def is_policy_file(policy: str, path: str) -> bool:
    """Return whether ``path`` is ``policy``, the value of the setting, or one of its drop-ins."""
    directory, _, name = path.rpartition("/")
    return bool(policy) and (path == policy or (directory == drop_in_directory(policy) and is_drop_in(name)))


def merge_order(policy: str, paths: Iterable[str]) -> list[str]:
    """Return these policy files from the weakest to the strongest."""
    return sorted(paths, key=lambda path: (path != RECOMMENDED, path != policy, path))


def layered(built_in: Policy, layers: Iterable[Policy]) -> Policy:
    """Return ``built_in`` with the entries of ``layers`` over it, the strongest last."""
    return reduce(merge, layers, built_in)
