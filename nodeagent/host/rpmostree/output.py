"""What a small program prints. For questions where no answer is an answer too."""

from __future__ import annotations

import asyncio

__all__ = ["output_of"]


async def output_of(*command: str, deadline: float) -> str:
    """ "" if there is no such program, or if it takes longer than ``deadline`` seconds. Its status is its own."""
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(*command, stdin=null, stdout=pipe, stderr=null)
    except OSError:
        return ""
    try:
        async with asyncio.timeout(deadline):
            output, _ = await process.communicate()
    except TimeoutError:
        return ""
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return output.decode("utf-8", "replace")
