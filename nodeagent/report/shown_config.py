# SPDX-License-Identifier: Apache-2.0
"""A MachineConfig for display: its document, with every value hidden that may be a secret.

Shown are ssh keys, the content of files that every user of the host may read and that does not look like a secret,
and other words that ``redact`` lets pass. What nodeagent does not apply, such as keys of LUKS, is hidden as a whole.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from nodeagent.core.config.machineconfig import ConfigSource, FileEntry
from nodeagent.core.config.parse import parse_stored
from nodeagent.core.config.text.document import load
from nodeagent.core.redact import HIDDEN, SECRET_NAME, redact

SCHEMA: Final = "nodeagent/machineconfig/v1"

_FILES: Final = "spec.config.storage.files["
_OTHERS_READ: Final = 0o004
# A public key looks like a credential to ``redact``, as does a long path.
_PUBLIC: Final = frozenset({"sshAuthorizedKeys", "path", "name"})
# A source is a URL with content. kubectl keeps a copy of the whole object in an annotation.
_HIDDEN: Final = frozenset(
    {"source", "verification", "httpHeaders", "luks", "kubectl.kubernetes.io/last-applied-configuration"}
)


def is_public(entry: FileEntry) -> bool:
    """Return whether the content of a managed file may be shown to every user."""
    if not entry.mode & _OTHERS_READ:
        return False
    try:
        text = entry.content.decode()
    except UnicodeDecodeError:
        # A key in a binary form has nothing by which it is recognised.
        return False
    return redact(text) == text


def config_to_dict(source: ConfigSource, *, secrets: bool) -> dict[str, Any]:
    """Return the ``nodeagent/machineconfig/v1`` object of a config. Blocks for as long as parsing takes.

    ``hidden`` are the places of the values that were replaced; with ``secrets`` there are none.
    """
    document, hidden = load(source.text, source.name, unique_keys=False), list[str]()
    if not secrets:
        files = parse_stored(source.text).files
        public = frozenset(path for path, entry in files.items() if is_public(entry))
        document = _shown(document, "", "", public, hidden)
    return {"schema": SCHEMA, "name": source.name, "digest": source.digest, "config": document, "hidden": hidden}


def _shown(value: Any, key: str, place: str, public: Collection[str], hidden: list[str]) -> Any:
    """Return a value without secrets. ``public`` are the paths of the files whose content is shown."""
    match value:
        case None | bool() | int() | float() | "":
            return value
        case _ if key in _HIDDEN or (isinstance(value, str) and SECRET_NAME.fullmatch(key)):
            hidden.append(place)
            return HIDDEN
        case dict():
            whole = place.startswith(_FILES) and value.get("path") in public
            return {
                name: item
                if whole and name == "contents"
                else _shown(item, name, f"{place}.{name}".removeprefix("."), public, hidden)
                for name, item in value.items()
            }
        case list():
            return [_shown(item, key, f"{place}[{index}]", public, hidden) for index, item in enumerate(value)]
        case str() if key not in _PUBLIC and (text := redact(value)) != value:
            hidden.append(place)
            return text
    return value
