"""What dataclasses generate, recorded by one process and used by another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from nodeagent import ahead

USED = """\
import dataclasses
from nodeagent import ahead
ahead.use()
compiled = []
class Counting(dict):
    def get(self, source):
        compiled.append(source) if source not in self else None
        return super().get(source)
cell = dataclasses.exec.__closure__[0]
cell.cell_contents = Counting(cell.cell_contents)
import nodeagent.agent.daemon
assert not compiled, compiled

@dataclasses.dataclass(frozen=True, slots=True)
class Unknown:
    one: int = 1
assert Unknown(2) == Unknown(one=2) != Unknown() and compiled
"""


def test_nothing_that_was_recorded_is_compiled_again(tmp_path: Path) -> None:
    copy = tmp_path / "site" / "nodeagent"
    copy.mkdir(parents=True)
    for entry in Path(ahead.__file__).parent.iterdir():
        (copy / entry.name).symlink_to(entry)
    (copy / "ahead.py").unlink()
    (copy / "ahead.py").write_bytes(Path(ahead.__file__).read_bytes())
    for words in (["-m", "nodeagent.ahead", copy / ahead.FILE], ["-c", USED]):
        subprocess.run([sys.executable, *words], cwd=tmp_path / "site", check=True, timeout=60)


def test_without_the_file_nothing_changes() -> None:
    program = "from nodeagent import ahead; ahead.use(); import dataclasses; assert 'exec' not in vars(dataclasses)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
