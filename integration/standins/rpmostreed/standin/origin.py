# SPDX-License-Identifier: Apache-2.0
"""A deployment's origin file: where it comes from and what was asked for on top."""

from __future__ import annotations

from typing import Any

from integration.standins.rpmostreed.standin.errors import Failed
from integration.standins.rpmostreed.standin.gir import GLib
from integration.standins.rpmostreed.standin.refspec import Kind, classify

CONTAINER_KEY = "container-image-reference"


class Origin:
    """A copy: changing it changes no deployment."""

    def __init__(self, deployment: Any) -> None:
        self.file = GLib.KeyFile.new()
        original = deployment.get_origin()
        if original is None:
            raise Failed("No origin known for deployment")
        text, _ = original.to_data()
        self.file.load_from_data(text, len(text.encode()), GLib.KeyFileFlags.NONE)
        if self.file.has_group("libostree-transient"):
            self.file.remove_group("libostree-transient")  # pins and the like belong to one deployment

    @property
    def refspec(self) -> str:
        for key in ("refspec", "baserefspec", CONTAINER_KEY):
            if (value := self.text("origin", key)) is not None:
                return value
        raise Failed("Failed to find refspec/baserefspec/container-image-reference in origin")

    @property
    def kind(self) -> Kind:
        return classify(self.refspec)

    def text(self, group: str, key: str) -> str | None:
        if not self.file.has_group(group) or key not in self.file.get_keys(group)[0]:
            return None
        return str(self.file.get_string(group, key))

    def texts(self, group: str, key: str) -> list[str]:
        return [item for item in (self.text(group, key) or "").split(";") if item]

    @property
    def override(self) -> str | None:
        """A commit to be on instead of what the ref says, or a digest instead of the tag."""
        return self.text("origin", "override-commit")

    @override.setter
    def override(self, commit: str | None) -> None:
        self._put("origin", "override-commit", commit)

    @property
    def packages(self) -> list[str]:
        return self.texts("packages", "requested")

    @property
    def removals(self) -> list[str]:
        return self.texts("overrides", "remove")

    def rebase(self, refspec: str, custom: tuple[str, str] | None = None) -> None:
        for key in ("refspec", "baserefspec", CONTAINER_KEY, "override-commit", "custom-url", "custom-description"):
            self._put("origin", key, None)
        self._put("origin", CONTAINER_KEY if classify(refspec) is Kind.CONTAINER else "refspec", refspec)
        if custom is not None:
            self._put("origin", "custom-url", custom[0])
            self._put("origin", "custom-description", custom[1])

    def add_packages(self, names: list[str], *, idempotent: bool) -> bool:
        """Return whether anything changed."""
        known = self.packages
        for name in names:
            if name in known and not idempotent:
                raise Failed(f"Package/capability '{name}' is already requested")
        return self._set_list("packages", "requested", sorted({*known, *names}))

    def remove_packages(self, names: list[str], *, idempotent: bool) -> bool:
        known = self.packages
        for name in names:
            if name not in known and not idempotent:
                raise Failed(f"Package/capability '{name}' is not currently requested")
        return self._set_list("packages", "requested", [name for name in known if name not in names])

    def remove_all_packages(self) -> bool:
        return self._set_list("packages", "requested", [])

    def add_removals(self, names: list[str]) -> None:
        for name in names:
            if name in self.removals:
                raise Failed(f"Override already exists for package '{name}'")
        self._set_list("overrides", "remove", sorted({*self.removals, *names}))

    def reset_removals(self, names: list[str]) -> None:
        for name in names:
            if name not in self.removals:
                raise Failed(f"No overrides for package '{name}'")
        self._set_list("overrides", "remove", [name for name in self.removals if name not in names])

    def remove_all_overrides(self) -> bool:
        return self._set_list("overrides", "remove", [])

    def finished(self) -> Any:
        """The key file to deploy with: an ostree ref under local changes is called baserefspec."""
        if self.kind is not Kind.CONTAINER:
            refspec = self.refspec
            layered = bool(self.packages or self.removals)
            self._put("origin", "refspec", None if layered else refspec)
            self._put("origin", "baserefspec", refspec if layered else None)
        return self.file

    def _set_list(self, group: str, key: str, values: list[str]) -> bool:
        changed = values != self.texts(group, key)
        self._put(group, key, "".join(f"{value};" for value in values) or None)
        return changed

    def _put(self, group: str, key: str, value: str | None) -> None:
        if value is not None:
            self.file.set_value(group, key, value)
        elif self.text(group, key) is not None:
            self.file.remove_key(group, key)
