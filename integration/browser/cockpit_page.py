# SPDX-License-Identifier: Apache-2.0
"""The steps of a test on the Cockpit page. Each one waits for what it names, with a deadline."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from integration.browser import cockpit
from integration.browser.browser import Page

# Seconds. The first session starts the bridge, on a machine that may be busy.
DEADLINE: Final = 60.0


class CockpitPage:
    """The page in a tab. The daemon runs in the loop of the test, so the browser is driven from a thread."""

    def __init__(self, tab: Page) -> None:
        self.tab = tab

    async def run(self, script: str, *arguments: Any) -> Any:
        return await asyncio.to_thread(self.tab.run, script, *arguments)

    async def wait(self, script: str, what: str) -> Any:
        return await asyncio.to_thread(self.tab.wait, script, what, DEADLINE)

    async def open(self, address: str, *, width: int = 1280, dark: bool = False) -> None:
        await asyncio.to_thread(self.tab.look, width, dark=dark)
        await asyncio.to_thread(self.tab.go, address + cockpit.ALONE)
        await self.loaded()

    async def loaded(self) -> None:
        await self.wait("return document.querySelector('#phase')?.textContent", "the page shows the status")

    async def shows(self, selector: str, words: str) -> None:
        """Wait until a visible element has these words."""
        shown = f"const e = document.querySelector({selector!r}); return e?.checkVisibility() && "
        await self.wait(f"{shown} e.innerText.includes({words!r})", f"{selector} shows {words!r}")

    async def hides(self, selector: str) -> None:
        await self.wait(f"return !document.querySelector({selector!r})?.checkVisibility()", f"{selector} is hidden")

    async def click(self, selector: str) -> None:
        """Click on a button as soon as it is enabled."""
        script = f"const e = document.querySelector({selector!r}); return e?.checkVisibility() && !e.disabled"
        await self.wait(script, f"{selector} is enabled")
        await self.run("document.querySelector(arguments[0]).click()", selector)

    async def enter(self, selector: str, text: str) -> None:
        """Enter a text as a keyboard does, with the event of the input."""
        await self.run(
            "const e = document.querySelector(arguments[0]); e.value = arguments[1];"
            "e.dispatchEvent(new Event('input', {bubbles: true}))",
            selector,
            text,
        )

    async def text(self, selector: str) -> str:
        """Return the text of an element, "" if it is hidden."""
        found: str = await self.run(
            "const e = document.querySelector(arguments[0]); return e?.checkVisibility() ? e.innerText : ''", selector
        )
        return found

    async def disabled(self, selector: str) -> bool:
        found: bool = await self.run("return document.querySelector(arguments[0]).disabled", selector)
        return found

    async def faults(self) -> list[str]:
        """Return what axe finds, the messages of the console, and whether the page scrolls sideways."""
        found = await asyncio.to_thread(self.tab.violations)
        # The log-in page and the shell have messages of their own.
        found += [line for line in await asyncio.to_thread(self.tab.log) if "/nodeagent/" in line]
        wide, window = await self.run("return [document.documentElement.scrollWidth, innerWidth]")
        return found + ([f"the page is {wide} wide in a window of {window}"] if wide > window else [])
