# SPDX-License-Identifier: Apache-2.0
"""Child processes of the harness: every one has a deadline and an error that shows what it said."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence

from integration.hosts.errors import CommandFailed

TAIL = 2000  # characters of a failed command's output that an error repeats

_factor = 1.0


@contextlib.contextmanager
def slowed(factor: float) -> Iterator[None]:
    """Multiply all deadlines: programs of another architecture are emulated, at a tenth of the speed."""
    global _factor
    kept, _factor = _factor, factor
    try:
        yield
    finally:
        _factor = kept


def run(
    argv: Sequence[str],
    *,
    timeout: float,
    stdin: bytes = b"",
    check: bool = True,
    env: Mapping[str, str] | None = None,
    shown: Sequence[str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run `argv` to its end. `timeout` is in seconds. `shown` replaces `argv` in errors, to hide a long prefix.

    The child leads its own process group and all of that is killed at the deadline: nsenter forks, and killing
    only nsenter would leave the command running inside the host.
    """
    name = shlex.join(shown or argv)
    timeout *= _factor
    with subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(env) if env is not None else None,
        start_new_session=True,
        umask=0o022,  # what these commands make gets into images: the umask of the caller must not
    ) as child:
        try:
            out, err = child.communicate(stdin, timeout=timeout)
        except BaseException as error:
            os.killpg(child.pid, signal.SIGKILL)
            out, err = child.communicate()
            if isinstance(error, subprocess.TimeoutExpired):
                raise CommandFailed(f"{name}: still running after {timeout:g} s{_said(out, err)}") from None
            raise
    done = subprocess.CompletedProcess(argv, child.returncode, out, err)
    if check and done.returncode != 0:
        raise CommandFailed(f"{name}: exit status {done.returncode}{_said(out, err)}")
    return done


def _said(out: bytes, err: bytes) -> str:
    text = (err.strip() or out.strip()).decode(errors="replace")
    return f": {text[-TAIL:]}" if text else ""
