"""Reject words that docs/development/style.md replaces. Part of ``make check``: ``python docs/words.py``.

Files join ``PLAIN`` when they are rewritten, and stay in it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
AVOID = (
    "anew",
    "at nought",
    "a person",
    "by itself",
    "for ever",
    "in spite of",
    "meanwhile",
    "nobody",
    "shall",
    "somebody",
    "stands in",
    "stands there",
    "tells",
    "told",
    "whoever",
)
WORDS = re.compile(rf"\b({'|'.join(AVOID)})\b", re.IGNORECASE)
# An address may keep the name that a page had before.
LINK = re.compile(r"\]\([^)]*\)")
# Paths and patterns below the root.
PLAIN = (
    "README.md",
    "docs/index.md",
    "docs/tutorial.md",
    "docs/development/*.md",
    "docs/explanation/*.md",
    "docs/reference/*.md",
    "docs/research/*.md",
    "docs/usage/*.md",
    "integration/hosts/*.py",
    "integration/hosts/container/image.py",
    "integration/hosts/container/recipe.py",
    "integration/hosts/ostree/ostree_host.py",
    "integration/hosts/ostree/test_conformance.py",
    "integration/trees/*.py",
    "nodeagent/agent/cluster_source.py",
    "nodeagent/agent/compose.py",
    "nodeagent/agent/daemon.py",
    "nodeagent/agent/coordination.py",
    "nodeagent/agent/maintenance.py",
    "nodeagent/agent/tasks.py",
    "nodeagent/core/coordination/*.py",
    "nodeagent/core/report/handshake.py",
    "nodeagent/core/report/rollout.py",
    "nodeagent/log/*.py",
    "nodeagent/kube/*.py",
    "nodeagent/_partial_import.py",
    "nodeagent/cli/*.py",
    "tests/cli/**/*.py",
    "integration/bench/plan.py",
    "nodeagent/core/config/**/*.py",
    "nodeagent/core/validate/*.py",
    "nodeagent/agent/from_settings.py",
    "nodeagent/agent/last_good_settings.py",
    "nodeagent/agent/own_config.py",
    "nodeagent/agent/policies.py",
    "nodeagent/core/hints.py",
    "nodeagent/agent/loop.py",
    "nodeagent/agent/update/*.py",
    "nodeagent/core/update/*.py",
    "nodeagent/host/store/*.py",
    "nodeagent/fence/**/*.py",
    "nodeagent/core/report/conditions.py",
    "nodeagent/core/report/counters.py",
    "nodeagent/core/report/display.py",
    "nodeagent/core/report/exposition.py",
    "nodeagent/core/report/history.py",
    "nodeagent/core/report/metrics.py",
    "nodeagent/core/report/redact.py",
    "nodeagent/core/report/status.py",
    "nodeagent/core/plan/*.py",
    "nodeagent/domains/*.py",
    "nodeagent/host/boot.py",
    "nodeagent/host/config_file.py",
    "nodeagent/host/dbus/*.py",
    "nodeagent/host/eventloop.py",
    "nodeagent/host/fs/*.py",
    "nodeagent/host/health.py",
    "nodeagent/host/inotify.py",
    "nodeagent/host/logind.py",
    "nodeagent/host/mcd_import.py",
    "nodeagent/host/notify.py",
    "nodeagent/host/systemd.py",
    "nodeagent/host/transient.py",
    "nodeagent/host/users.py",
    "nodeagent/host/rpmostree/*.py",
    "nodeagent/host/etcd/*.py",
    "nodeagent/core/etcd/quorum.py",
    "nodeagent/host/fleetlock.py",
    "nodeagent/host/http.py",
    "nodeagent/host/lease.py",
    "nodeagent/settings/*.py",
    "packaging/**/*.py",
    "packaging/*.sh",
    "packaging/man/nodeagent.8",
    "systemd/usr/lib/**/*.*",
    "tests/agent/update/test_os_manual.py",
    "tests/agent/update/test_os_rollback.py",
    "tests/conftest.py",
    "tests/integration/test_sources.py",
    "tests/support/guards.py",
    "tests/world/*.py",
)
# The page that lists the words.
EXCEPT = ("docs/development/style.md",)


def findings(text: str) -> Iterator[tuple[int, str]]:
    """Line numbers, from 1, with the word that is found there."""
    for number, line in enumerate(text.splitlines(), 1):
        for match in WORDS.finditer(LINK.sub("]", line)):
            yield number, match[0]


def main() -> int:
    found = 0
    for pattern in PLAIN:
        paths = sorted(ROOT.glob(pattern))
        if not paths:
            sys.stdout.write(f"docs/words.py: {pattern} matches no file\n")
            found += 1
        for path in filter(Path.is_file, paths):
            name = str(path.relative_to(ROOT))
            for line, word in [] if name in EXCEPT else findings(path.read_text(encoding="utf-8")):
                sys.stdout.write(f"{name}:{line}: {word!r} (see docs/development/style.md)\n")
                found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
