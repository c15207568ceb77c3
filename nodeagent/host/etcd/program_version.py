"""The version of the etcd that this host would start."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from nodeagent.errors import InvalidInput
from nodeagent.host.checkers.job import CheckerLate, run_program
from nodeagent.reasons import Reason

__all__ = ["program_version"]

DEADLINE: Final = 10.0
VERSION = re.compile(r"etcd Version: (\d{1,4}\.\d{1,4}\.\d{1,4}\S{0,40})")


async def program_version(program: str) -> str:
    """Run ``etcd --version``. Raises ``InvalidInput`` (``EtcdConfigInvalid``) if that is no etcd."""
    try:
        _, lines = await run_program(program, ["--version"], Path("/"), DEADLINE)
    except OSError as error:
        raise InvalidInput(f"{program}: {error.strerror}", reason=Reason.ETCD_CONFIG_INVALID) from error
    except CheckerLate:
        lines = ()
    found = next(filter(None, map(VERSION.fullmatch, lines)), None)
    if found is None:
        raise InvalidInput(f"{program} --version names no version of etcd", reason=Reason.ETCD_CONFIG_INVALID)
    return found[1]
