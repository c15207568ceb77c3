# SPDX-License-Identifier: Apache-2.0
"""Kernel arguments with the rules and error texts of libostree's OstreeKernelArgs, which introspection cannot reach."""

from __future__ import annotations

from integration.standins.rpmostreed.standin.errors import Failed


def split(text: str) -> list[str]:
    """Split at white space, except inside double quotes. The quotes stay."""
    words: list[str] = []
    word, quoted = "", False
    for character in text:
        if character == '"':
            quoted = not quoted
        if character.isspace() and not quoted:
            if word:
                words.append(word)
            word = ""
        else:
            word += character
    return [*words, word] if word else words


class KernelArguments:
    def __init__(self, text: str) -> None:
        self.words = split(text)

    def __str__(self) -> str:
        return " ".join(self.words)

    def append(self, argument: str) -> None:
        self.words += split(argument)

    def delete(self, argument: str) -> None:
        """`key=value`, or `key` alone where it has a single value."""
        for word in split(argument):
            key, equals, _ = word.partition("=")
            same_key = self._with_key(key)
            if not same_key:
                raise Failed(f"No key '{key}' found")
            if len(same_key) == 1:
                if equals and same_key[0] != word:
                    raise Failed(f"No karg '{word}' found")
                self.words.remove(same_key[0])
            elif word in same_key:
                self.words.remove(word)
            elif equals:
                raise Failed(f"No karg '{argument}' found")
            else:
                raise Failed(f"Multiple values for key '{argument}' found")

    def replace(self, argument: str) -> None:
        """`key=new` where there is one value, else `key=old=new`."""
        for word in split(argument):
            key, equals, value = word.partition("=")
            same_key = self._with_key(key)
            if not same_key:
                raise Failed(f"No key '{key}' found")
            if "=" in value:
                old, _, new = value.partition("=")
                if f"{key}={old}" not in same_key:
                    raise Failed(f"No karg '{key}={old}' found")
                self._put(f"{key}={old}", f"{key}={new}")
            elif len(same_key) > 1:
                raise Failed(f"Multiple values for key '{key}' found")
            else:
                self._put(same_key[0], f"{key}={value}" if equals else key)

    def _put(self, old: str, new: str) -> None:
        self.words[self.words.index(old)] = new

    def _with_key(self, key: str) -> list[str]:
        return [word for word in self.words if word.partition("=")[0] == key]
