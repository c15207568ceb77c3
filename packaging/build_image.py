# SPDX-License-Identifier: Apache-2.0
"""Build the layer for images of an operating system: `python packaging/build_image.py --out dist [--base ARCHIVE]`.

Without a base, the OCI archive nodeagent-VERSION-MACHINE.oci.tar has the layer alone, for `COPY --from`. With the OCI
archive of an operating system as base, nodeagent-os-VERSION-MACHINE.oci.tar has its layers and ours. Neither needs a
container engine. The package of build.py is built first if it is not up to date; the layer has the same files, and the
link that starts the unit. The same commit and base give the same bytes.
"""

from __future__ import annotations

import gzip
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import build as package
from bundle import oci, tools
from bundle.errors import BuildError
from bundle.names import NAME, Name

# Presets apply to a first boot only, not to a host that is rebased to the image, and /etc of a host is its own. A wants
# link of the vendor starts the unit in both; `systemctl mask` takes it back.
WANTS = "usr/lib/systemd/system/multi-user.target.wants"
LINK = f"{WANTS}/nodeagent.service"
TARGET = "../nodeagent.service"
HOME = "https://github.com/nodeagent/nodeagent"
VERSION_LABEL = "org.nodeagent.version"


def main(arguments: list[str]) -> int:
    parser = package.common_parser(__file__, __doc__)
    parser.add_argument("--base", type=Path, help="OCI archive of an operating system to put the layer on (none)")
    options = parser.parse_args(arguments)
    out = options.out.resolve()
    try:
        tar = package.build(out, options.machine, options.interpreter)
        build(tar, out, options.base)
    except BuildError as error:
        print(f"package: {error}", file=sys.stderr)
        return 1
    return 0


def build(tar: Path, out: Path, base: Path | None = None) -> Path:
    """Write the archive for the package `tar` to the directory `out` and return its path.

    Raises BuildError, and leaves an older one as it was.
    """
    begun = time.monotonic()
    name, epoch = Name.of(tar), package.source_date_epoch()
    labels = {VERSION_LABEL: name.full_version}
    if base is None:
        labels |= {
            "org.opencontainers.image.title": NAME,
            "org.opencontainers.image.version": name.full_version,
            "org.opencontainers.image.licenses": "Apache-2.0",
            "org.opencontainers.image.url": HOME,
            "org.opencontainers.image.source": HOME,
            "org.opencontainers.image.documentation": f"{HOME}/tree/main/docs",
        }
    target = out / name.file(".oci.tar", "" if base is None else "os")
    with tempfile.TemporaryDirectory(prefix=package.SCRATCH, dir=out) as directory:
        scratch = Path(directory)
        write_layer(tar, scratch / "layer.tar", epoch)
        image = oci.Image(scratch / "layer.tar", name.machine, labels, target.name.removesuffix(".oci.tar"), epoch)
        oci.write(image, scratch / target.name, scratch, base)
        (scratch / target.name).replace(target)
    tools.log(f"{target} ({target.stat().st_size / 1e6:.1f} MB) in {time.monotonic() - begun:.1f} s")
    return target


def write_layer(tar: Path, target: Path, epoch: int) -> None:
    """Write the tar of the package, uncompressed, with the link that starts the unit."""
    target.write_bytes(gzip.decompress(tar.read_bytes()))
    directory, link = tarfile.TarInfo(WANTS), tarfile.TarInfo(LINK)
    directory.type, directory.mode = tarfile.DIRTYPE, 0o755
    link.type, link.linkname, link.mode = tarfile.SYMTYPE, TARGET, 0o777
    with tarfile.open(target, "a:", format=tarfile.PAX_FORMAT) as archive:
        for added in (directory, link):
            added.uname = added.gname = "root"
            added.mtime = epoch
            archive.addfile(added)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
