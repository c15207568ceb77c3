# SPDX-License-Identifier: Apache-2.0
"""Write the tree as a tar, and as a squashfs image that systemd-sysext merges into /usr.

Both depend on the content only: names are sorted, the owner is root, all times are the given one, and attributes of the
file system of the build machine are left out.
"""

from __future__ import annotations

import io
import os
import re
import tarfile
from pathlib import Path

from bundle import tools
from bundle.names import NAME, Name

COMPRESS_TIMEOUT = 300.0  # seconds

# systemd's own names for architectures where they differ from uname's.
ARCHITECTURES = {"x86_64": "x86-64", "aarch64": "arm64"}


# A boot decides what to start before system extensions are merged, so an enabled unit of an extension is not started.
# PID 1 reads this file with the reload that follows the merge, in time for what systemd-sysext.service does last.
START_AT_BOOT = f"usr/lib/systemd/system/systemd-sysext.service.d/10-{NAME}.conf"
START = f"""\
# Starts the unit of this extension, if it is enabled, after the extension was merged.
[Service]
ExecStartPost=-/bin/sh -c 'systemctl --quiet is-enabled {NAME}.service && systemctl --no-block start {NAME}.service'
"""

# Files of an image cannot be relabelled, and on an enforcing host PID 1 executes no file without a label.
LABELS = (
    (r"usr/(.*/)?bin(/.*)?", "bin_t"),
    (r"usr/lib/systemd/system(/.*)?", "systemd_unit_file_t"),
    (r"usr/lib(/.*)?", "lib_t"),
    (r"usr/share/man(/.*)?", "man_t"),
    (r"usr(/.*)?", "usr_t"),
)


def write_tar(tree: Path, target: Path, epoch: int, python: Path) -> None:
    """Write `tree` as a compressed tar to unpack over /. `epoch` is the time of every file, in seconds.

    The bundled `python` compresses it, because its zlib is locked: another zlib may write other bytes.
    """
    program = f"import gzip, sys; sys.stdout.buffer.write(gzip.compress(sys.stdin.buffer.read(), 6, mtime={epoch}))"
    argv: list[str | Path] = [python, "-IS", "-c", program]
    target.write_bytes(tools.run(argv, timeout=COMPRESS_TIMEOUT, stdin=_tar(tree, epoch, {})))


def write_sysext(tree: Path, target: Path, epoch: int, name: Name) -> None:
    """Write `tree` as a system extension image for any distribution of this architecture."""
    extra = {
        # systemd requires the name of the image.
        f"usr/lib/extension-release.d/extension-release.{NAME}": extension_release(name),
        START_AT_BOOT: START,
    }
    # With a tar as input, owners and times need no root, and the order of a directory does not matter.
    command = [tools.require("sqfstar"), "-quiet", "-no-progress", "-comp", "zstd"]
    # The archive has no entry for the root, and of all options only -all-time reaches its time.
    command += ["-mkfs-time", str(epoch), "-all-time", str(epoch)]
    command += ["-root-mode", "0755", "-root-uid", "0", "-root-gid", "0"]
    # sqfstar rejects a SOURCE_DATE_EPOCH together with explicit times.
    tools.run(
        [*command, str(target)],
        timeout=COMPRESS_TIMEOUT,
        stdin=_tar(tree, epoch, extra, labels=True),
        env={"PATH": os.defpath},
    )


def extension_release(name: Name) -> str:
    """Return the content of the extension-release file; keys as in os-release(5).

    ID=_any: the tree needs nothing but a kernel and a glibc, so no release of the host has to match.
    EXTENSION_RELOAD_MANAGER: the image carries units, which PID 1 sees only after a reload.
    """
    return (
        f"ID=_any\nARCHITECTURE={ARCHITECTURES[name.machine]}\nSYSEXT_SCOPE=system\n"
        f"EXTENSION_RELOAD_MANAGER=1\nSYSEXT_VERSION_ID={name.full_version}\n"
    )


def _tar(tree: Path, epoch: int, extra: dict[str, str], *, labels: bool = False) -> bytes:
    """Return an uncompressed archive of `tree` and of the `extra` files, which are given by name and content."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        members = {str(path.relative_to(tree)): path for path in tree.rglob("*")}
        folders = {str(parent) for name in extra for parent in Path(name).parents[:-1]}
        for name in sorted(members.keys() | extra.keys() | folders):
            content = b""
            if path := members.get(name):
                info = archive.gettarinfo(path, name)
                content = path.read_bytes() if info.isreg() else b""
            else:
                info = tarfile.TarInfo(name)
                content = extra.get(name, "").encode()
                info.size = len(content)
                if name in folders:
                    info.type, info.mode = tarfile.DIRTYPE, 0o755
            info.uid = info.gid = 0
            info.uname = info.gname = "root"
            info.mtime = epoch
            if labels:
                info.pax_headers = {"SCHILY.xattr.security.selinux": f"system_u:object_r:{_type(name)}:s0\0"}
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def _type(name: str) -> str:
    """Return the SELinux type of /`name` in the targeted policy of Fedora and RHEL."""
    return next(label for pattern, label in LABELS if re.fullmatch(pattern, name))
