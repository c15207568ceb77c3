# SPDX-License-Identifier: Apache-2.0
"""What a list of components must be as CycloneDX 1.6 (ECMA-424): the keys that it may have, their forms, and the rules
beyond a schema. Stricter than the standard where the project is, and with no key that the project does not write.

To compare with the schema of the publisher, which no test fetches, see docs/development/packaging.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from nodeagent import typed

_PURL = r"^pkg:(generic|pypi|maven|github|deb)/[^\s@]+(@[^\s@]+)?$"
Purl = Annotated[str, Meta(pattern=_PURL)]
Word = Annotated[str, Meta(min_length=1, pattern=r"^\S+$")]
Cpe = Annotated[str, Meta(pattern=r"^cpe:2\.3:a:[a-z0-9_]+:[a-z0-9_]+:[^:\s]+(:\*){7}$")]

# Identifiers of the SPDX licence list 3.27 that components have had.
LICENCES = frozenset(
    ["Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "LGPL-2.1-or-later", "MIT", "MPL-2.0", "PSF-2.0", "Zlib", "blessing"]
)
_EXPRESSION = re.compile(r"[\w.+-]+( (AND|OR) [\w.+-]+)*")


class _Keys(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    pass


class Hash(_Keys):
    alg: Literal["SHA-256"]
    content: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]


class Reference(_Keys):
    type: Literal["distribution"]
    url: Annotated[str, Meta(min_length=1, pattern=r"^(pkg|https):\S+$")]
    hashes: Annotated[list[Hash], Meta(min_length=1)]


class Licence(_Keys):
    expression: str


class Component(_Keys):
    type: Literal["library", "application"]
    ref: Purl = msgspec.field(name="bom-ref")
    name: Word
    # With an expression, the standard allows no second item.
    licenses: Annotated[list[Licence], Meta(min_length=1, max_length=1)]
    purl: Purl
    version: Word | None = None
    cpe: Cpe | None = None
    external_references: Annotated[list[Reference], Meta(min_length=1)] | None = None


class Property(_Keys):
    name: Word
    value: Word


class Metadata(_Keys):
    component: Component
    properties: list[Property]


class Dependency(_Keys):
    ref: Purl
    depends_on: list[Purl] | None = None


class Document(_Keys):
    bom_format: Literal["CycloneDX"]
    spec_version: Literal["1.6"]
    version: Annotated[int, Meta(ge=1)]
    metadata: Metadata
    components: list[Component]
    dependencies: list[Dependency]


def violations(text: bytes) -> list[str]:
    """Return what is wrong with a document."""
    try:
        document = typed.from_json(text, Document)
    except ValueError as error:
        return [str(error)]
    return list(_beyond_the_schema(document))


def _beyond_the_schema(document: Document) -> Iterator[str]:
    everything = [document.metadata.component, *document.components]
    refs = [component.ref for component in everything]
    yield from (f"{ref} occurs twice" for ref in {ref for ref in refs if refs.count(ref) > 1})
    for component in everything:
        expression = component.licenses[0].expression
        if not _EXPRESSION.fullmatch(expression) or {*re.split(" AND | OR ", expression)} - LICENCES:
            yield f"{component.ref}: {expression} is no known expression of SPDX"
        if component.version is not None and not component.purl.endswith(f"@{component.version}"):
            yield f"{component.ref}: the version {component.version} is not that of its purl"
    listed = [dependency.ref for dependency in document.dependencies]
    if sorted(listed) != sorted(refs):
        yield "each component must have its dependencies, once"
    named = {name for dependency in document.dependencies for name in dependency.depends_on or ()}
    yield from (f"{name} is a dependency and no component" for name in sorted(named - {*refs}))
