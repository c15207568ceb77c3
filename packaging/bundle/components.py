# SPDX-License-Identifier: Apache-2.0
"""List what is bundled, with versions and licences, as a CycloneDX document and collect the licence texts.

The Python packages describe themselves. The interpreter and the C libraries inside it do not: the bundled interpreter
is run for their versions, and packaging/licenses has the texts.
"""

from __future__ import annotations

import json
import re
import shutil
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from bundle import tools
from bundle.errors import BuildError
from bundle.origins.base import Part

TIMEOUT = 30.0  # seconds
SBOM = "sbom.cdx.json"
ORIGIN = "nodeagent:interpreter"  # a property of the document

# Prints one version per line, in the order of LIBRARIES.
VERSIONS = """\
import decimal, platform, pyexpat, sqlite3, ssl, sys, zlib
sys.path.append(sys.argv[1])
from yaml import _yaml
print(platform.python_version(), ssl.OPENSSL_VERSION.split()[1], sqlite3.sqlite_version, zlib.ZLIB_RUNTIME_VERSION)
print(pyexpat.EXPAT_VERSION.removeprefix("expat_"), decimal.__libmpdec_version__, _yaml.get_version_string())
"""
LIBRARIES = (
    ("python", "PSF-2.0"),
    ("openssl", "Apache-2.0"),
    ("sqlite", "blessing"),
    ("zlib", "Zlib"),
    ("expat", "MIT"),
    ("mpdecimal", "BSD-2-Clause"),
    ("libyaml", "MIT"),
    # Neither knows its version.
    ("libffi", "MIT"),
    ("llhttp", "MIT"),
)
# Advisories name these by other words than the names above. Source: the NVD's dictionary of products.
CPE = {"python": "python:python", "openssl": "openssl:openssl", "sqlite": "sqlite:sqlite", "zlib": "zlib:zlib"}
CPE |= {"expat": "libexpat_project:libexpat", "libyaml": "pyyaml:libyaml"}

# Of packages whose metadata has a name that is no SPDX expression.
SPDX = {"Apache 2.0": "Apache-2.0"}
SPDX |= {"BSD": "BSD-3-Clause"}  # msgspec 0.19
LICENSE_FILE = re.compile(r"(LICEN[CS]E|COPYING|NOTICE)")


class Component(NamedTuple):
    name: str
    version: str  # empty if the component does not know it
    license: str  # an SPDX expression
    purl: str
    cpe: str = ""
    part: Part | None = None  # what the origin of the interpreter made it of


def bundled(python: Path, packages: Path, made_of: list[Part]) -> list[Component]:
    """Return the components of the tree, sorted by name.

    `made_of` is what the parts of the interpreter were made of. Raises BuildError for a package without a licence, and
    for a part that reports another version than the locked one.
    """
    answer = tools.run([python, "-BIS", "-c", VERSIONS, packages], timeout=TIMEOUT).decode().split()
    versions = answer + [""] * (len(LIBRARIES) - len(answer))
    known = {part.name: part for part in made_of}
    found = [
        _library(name, version, expression, known.get(name))
        for (name, expression), version in zip(LIBRARIES, versions, strict=True)
    ]
    found += [package(each) for each in metadata.distributions(path=[str(packages)])]
    return sorted(found)


def _library(name: str, version: str, expression: str, part: Part | None) -> Component:
    built = part.version if part else ""
    if version and built and version != built:
        raise BuildError(f"the interpreter has {name} {version}, the lock says {built}")
    version = version or built
    known = CPE.get(name, "")
    suffix = f"@{version}" if version else ""
    cpe = f"cpe:2.3:a:{known}:{version}:*:*:*:*:*:*:*" if known else ""
    return Component(name, version, expression, f"pkg:generic/{name}{suffix}", cpe, part)


def package(package: metadata.Distribution) -> Component:
    fields = package.metadata.json
    given = str(fields.get("license_expression") or fields.get("license") or "")
    if not given:
        raise BuildError(f"{package.name} {package.version} names no licence")
    name = re.sub(r"[-_.]+", "-", package.name).lower()
    return Component(name, package.version, SPDX.get(given, given), f"pkg:pypi/{name}@{package.version}")


def write_sbom(components: list[Component], version: str, origin: str, target: Path) -> None:
    """Write a CycloneDX 1.6 document that names the `origin` of the interpreter.

    It has no serial number and no time, so the same tree gives the same bytes.
    """
    own = _entry(Component("nodeagent", version, "Apache-2.0", f"pkg:generic/nodeagent@{version}"))
    document: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {**own, "type": "application"},
            "properties": [{"name": ORIGIN, "value": origin}],
        },
        "components": [_entry(each) for each in components],
        "dependencies": [
            {"ref": f"pkg:generic/nodeagent@{version}", "dependsOn": [each.purl for each in components]},
            *({"ref": each.purl} for each in components),
        ],
    }
    target.write_text(json.dumps(document, indent=1) + "\n")


def _entry(component: Component) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "library", "bom-ref": component.purl, "name": component.name}
    entry |= {"version": component.version} if component.version else {}
    entry |= {"licenses": [{"expression": component.license}], "purl": component.purl}
    entry |= {"cpe": component.cpe} if component.cpe else {}
    if component.part is None:
        return entry
    part = component.part
    reference = {"type": "distribution", "url": part.purl}
    hashes = [[{"alg": "SHA-256", "content": each}] for each in part.sha256]
    return entry | {"externalReferences": [{**reference, "hashes": each} for each in hashes]}


def copy_licenses(source: Path, packages: Path, own: Path, target: Path) -> None:
    """Write every licence text of the tree below `target`, in a folder for each component.

    `own` has those that came with the sources of the interpreter, which replace those of the repository.
    """
    for path in sorted((source / "packaging" / "licenses").glob("*.txt")):
        _copy(path, target / path.stem / "LICENSE")
    # OpenSSL has the text of our own licence.
    _copy(source / "LICENSE", target / "openssl" / "LICENSE")
    for path in sorted(own.glob("*/LICENSE")):
        _copy(path, target / path.parent.name / path.name)
    for path in sorted(packages.glob("*.dist-info/**/*")):
        if path.is_file() and LICENSE_FILE.match(path.name):
            place = path.relative_to(packages)
            name = "llhttp" if "llhttp" in place.parts else place.parts[0].split("-")[0].lower()
            _copy(path, target / name.replace("_", "-") / path.name)


def _copy(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, target)
