# SPDX-License-Identifier: Apache-2.0
"""Compare the extension-release of an image with the host, before the image is merged.

The file is in a file system that only the kernel reads, and nodeagent.service may not mount. So systemd mounts the
image for a program of a transient unit, without rights, that copies the file to its output. Not systemd-dissect: many
hosts lack it. What cannot be read is left to the merge, which is verified.
"""

from __future__ import annotations

import asyncio
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from nodeagent.features.extension_images.decide import release_of, unfit
from nodeagent.host.admin_programs import TransientProgram
from nodeagent.host.fs.read_inside import read_regular
from nodeagent.host.programs import NotStarted

UNIT: Final = "nodeagent-extension-release"
# systemd makes it for the unit, and removes it.
MOUNTED: Final = f"/run/{UNIT}"

# Seconds: a mount of an image with dm-verity on a slow disk.
DEADLINE: Final = 60.0
# Bytes of one file.
MAX_RELEASE: Final = 1 << 16

_RELEASES: Final = ("etc/os-release", "usr/lib/os-release")
# Other characters have a meaning for systemd-run.
_PLAIN = re.compile(r"[A-Za-z0-9._+@/-]+")


async def why_unfit(file: str, name: str, root: Path = Path("/")) -> str:
    """Return why systemd-sysext will not merge the image ``file`` as ``name``, "" if it may or if that is not known.

    ``root`` is that of the host, for its os-release.
    """
    extension = await extension_release(file, name)
    if extension is None:
        return ""
    return unfit(extension, await asyncio.to_thread(_host_release, root), platform.machine())


async def extension_release(file: str, name: str) -> Mapping[str, str] | None:
    """Return the extension-release of the image ``file``, which is merged as ``name``; None if it cannot be read."""
    if not (_PLAIN.fullmatch(file) and _PLAIN.fullmatch(name)):
        return None
    path = f"{MOUNTED}/usr/lib/extension-release.d/extension-release.{name}"
    program = TransientProgram(
        "the read of an extension-release",
        "dd",
        f"{UNIT}.service",
        f"Extension release of {name}, for nodeagent",
        DEADLINE,
        # A link in an image would lead to a file of the host.
        arguments=(f"if={path}", "iflag=nofollow", f"bs={MAX_RELEASE}", "count=1", "status=none"),
        properties=(
            f"RuntimeDirectory={UNIT}",
            f"MountImages={file}:{MOUNTED}",
            "CapabilityBoundingSet=",
            "PrivateNetwork=yes",
        ),
    )
    try:
        result = await program.result()
    except NotStarted:
        return None
    return release_of(result[1]) if not isinstance(result, str) and result[0] == 0 else None


def _host_release(root: Path) -> Mapping[str, str]:
    """Return the os-release of the host, {} without one."""
    for path in _RELEASES:
        try:
            return release_of(read_regular(root / path, MAX_RELEASE).decode(errors="replace").splitlines())
        except OSError:
            continue
    return {}
