"""The version of the etcd that this host would start."""

from __future__ import annotations

import asyncio
import re
from typing import Final

from nodeagent.errors import InvalidInput
from nodeagent.reasons import Reason

__all__ = ["program_version"]

DEADLINE: Final = 10.0
MAX_OUTPUT: Final = 4096
VERSION = re.compile(rb"^etcd Version: (\d{1,4}\.\d{1,4}\.\d{1,4}\S{0,40})$", re.MULTILINE)


async def program_version(program: str) -> str:
    """Run ``etcd --version``. Raises ``InvalidInput`` (``EtcdConfigInvalid``) if that is no etcd."""
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            "--version",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            # The package sets library paths that are wrong for programs of the host.
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        )
    except OSError as error:
        raise InvalidInput(f"{program}: {error.strerror}", reason=Reason.ETCD_CONFIG_INVALID) from error
    assert process.stdout is not None
    try:
        async with asyncio.timeout(DEADLINE):
            output = await process.stdout.read(MAX_OUTPUT)
    except TimeoutError:
        output = b""
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
    found = VERSION.search(output)
    if found is None:
        raise InvalidInput(f"{program} --version names no version of etcd", reason=Reason.ETCD_CONFIG_INVALID)
    return found[1].decode()
