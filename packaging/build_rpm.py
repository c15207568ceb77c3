# SPDX-License-Identifier: Apache-2.0
"""Build the RPMs: `python packaging/build_rpm.py --out dist`.

The package of build.py is built first if it is not up to date; the RPM has the same files. The one for hosts that have
a Python, nodeagent-python3, has those that do not depend on the architecture. The same commit gives the same bytes with
the same version of rpm.
"""

from __future__ import annotations

import json
import os
import sys
import tarfile
import time
from datetime import UTC, datetime
from pathlib import Path

import build as package
from bundle import components, noarch, tools
from bundle.errors import BuildError
from bundle.names import Name

SPEC = Path(__file__).parent / "rpm" / "nodeagent.spec"
LINT = Path(__file__).parent / "rpm" / "rpmlint.toml"
TIMEOUT = 600.0  # seconds; the compression takes most of them
# rpm 6 writes another format by default, which rpm-ostree of current releases does not read.
FORMAT = "4"
SHA256 = "8"
COMPRESSION = "w19.zstdio"  # Fedora's
FAST = "w3.zstdio"


def main(arguments: list[str]) -> int:
    parser = package.common_parser(__file__, __doc__)
    parser.add_argument("--fast", action="store_true", help="compress less, for tests")
    options = parser.parse_args(arguments)
    out = options.out.resolve()
    try:
        rpmbuild, rpmlint = tools.require("rpmbuild"), tools.require("rpmlint")
        tar = package.build(out, options.machine, options.interpreter)
        begun = time.monotonic()
        compression = FAST if options.fast else COMPRESSION
        built = build(rpmbuild, tar, out, compression) + build_noarch(rpmbuild, tar, out, compression)
        tools.run([rpmlint, "--config", LINT, *built], timeout=TIMEOUT)
    except BuildError as error:
        print(f"package: {error}", file=sys.stderr)
        return 1
    sizes = ", ".join(f"{each} ({each.stat().st_size / 1e6:.1f} MB)" for each in built)
    tools.log(f"{sizes} in {time.monotonic() - begun:.1f} s")
    return 0


def build(rpmbuild: str, tar: Path, out: Path, compression: str) -> list[Path]:
    """Write the RPMs of `tar` to the directory `out` and return their paths, the main one first. Raises BuildError.

    `compression` is a value of rpm's macro _binary_payload.
    """
    name = Name.of(tar)
    with package.scratch_folder(out) as scratch:
        macros = {
            "_topdir": str(scratch),
            "_rpmdir": f"{scratch}/out",
            "_build_name_fmt": "%%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm",
            "_buildhost": "reproducible",
            "use_source_date_epoch_as_buildtime": "1",
            "clamp_mtime_to_source_date_epoch": "1",
            "source_date_epoch_from_changelog": "0",
            "_rpmformat": FORMAT,
            "_binary_payload": compression,
            "_source_filedigest_algorithm": SHA256,
            "_binary_filedigest_algorithm": SHA256,
            "nodeagent_version": name.version,
            # Older than any release.
            "nodeagent_release": "0.testing" if name.testing else "1",
            "nodeagent_tar": str(tar),
            "nodeagent_bundled": ", ".join(bundled(tar)),
            "nodeagent_date": datetime.fromtimestamp(package.source_date_epoch(), UTC).strftime("%a %b %d %Y"),
            "nodeagent_requires": ", ".join(noarch.requirements(package.SOURCE / "pyproject.toml")),
        }
        command = [rpmbuild, "-bb", "--quiet", "--target", f"{name.machine}-unknown-linux"]
        for key, value in macros.items():
            command += ["--define", f"{key} {value}"]
        for each in ("BUILD", "BUILDROOT"):
            (scratch / each).mkdir()
        environment = {"PATH": os.defpath, "LC_ALL": "C.UTF-8", "TZ": "UTC", "HOME": str(scratch)}
        environment["SOURCE_DATE_EPOCH"] = str(package.source_date_epoch())
        tools.run([*command, str(SPEC)], timeout=TIMEOUT, env=environment)
        # "nodeagent-0" sorts before "nodeagent-selinux".
        return [path.replace(out / path.name) for path in sorted((scratch / "out").rglob("*.rpm"))]


def bundled(tar: Path) -> list[str]:
    """Return what the packages of Fedora provide for a library that they contain, from the list of components."""
    with tarfile.open(tar) as archive:
        names = [name for name in archive.getnames() if name.endswith(f"/{components.SBOM}")]
        file = archive.extractfile(names[0]) if names else None
        listed = json.load(file)["components"] if file is not None else []
    provided = []
    for entry in listed:
        python = entry["purl"].startswith("pkg:pypi/")
        name = f"python3dist({entry['name'].lower()})" if python else entry["name"].lower()
        # A hyphen would begin the release.
        version = entry.get("version", "").replace("-", "~")
        provided.append(f"bundled({name})" + (f" = {version}" if version else ""))
    return sorted(provided)


def build_noarch(rpmbuild: str, tar: Path, out: Path, compression: str) -> list[Path]:
    """Write the RPM for hosts that have a Python, from the `tar` of any machine. Raises BuildError."""
    with package.scratch_folder(out) as scratch:
        reduced = noarch.repack(tar, scratch, package.source_date_epoch(), Path(sys.executable))
        return build(rpmbuild, reduced, out, compression)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
