# SPDX-License-Identifier: Apache-2.0
"""Chromium of Debian, in a cached image of its own, driven over WebDriver.

    python -m integration.browser.browser       builds the image and reports its size

Nothing is installed on this machine: the browser runs in a chroot, with the network of this machine. axe, which checks
accessibility, comes from a package of PyPI that bundles it.
"""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from integration.hosts import process
from integration.hosts.container import container_host
from integration.hosts.container.image import Image, base_image, derived_image
from integration.hosts.errors import HostRingError
from integration.hosts.requirements import Say
from integration.trees.base import CHROOT_ENV, chrooted, install
from integration.trees.toolbox import scratch

PACKAGES: Final = ("chromium", "chromium-driver", "fonts-dejavu-core")
# Bundles axe 4.12.1.
AXE: Final = "axe-playwright-python==0.1.8"
AXE_FILE: Final = "opt/axe/axe_playwright_python/axe.min.js"

# Seconds for the start of the driver, and for one of its commands.
START: Final = 30.0
COMMAND: Final = 60.0

FLAGS: Final = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--disable-component-update",
)


def browser_image(say: Say) -> Image:
    """Raises Unavailable where no image can be made."""

    def add_axe(root: Path) -> None:
        uv = Path(sys.executable).with_name("uv")
        argv = [str(uv), "pip", "install", "--quiet", "--no-deps", "--target", str(root / "opt/axe"), AXE]
        process.run(argv, timeout=120)

    message = "installing Chromium for the tests of pages, about a minute, once"
    return image_with("browser", PACKAGES, say, message, add_axe, AXE)


def image_with(
    kind: str,
    packages: tuple[str, ...],
    say: Say,
    message: str,
    change: Callable[[Path], None] = lambda root: None,
    source: str = "",
) -> Image:
    """Return an image with packages of Debian and a ``change`` that is made from ``source``."""

    def fill(root: Path) -> None:
        say(message)
        install(root, packages)
        shutil.rmtree(root / "var/lib/apt/lists")
        change(root)

    return derived_image(base_image(say), kind, repr((packages, source)).encode(), fill)


class Page:
    """A tab of the browser."""

    def __init__(self, address: str, root: Path) -> None:
        self._address = address
        self._root = root
        options = {"goog:chromeOptions": {"args": list(FLAGS), "binary": "/usr/bin/chromium"}}
        wanted = {"alwaysMatch": {**options, "acceptInsecureCerts": True, "goog:loggingPrefs": {"browser": "ALL"}}}
        self._session = self._request("POST", "/session", {"capabilities": wanted})["sessionId"]

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(
            self._address + path, data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=COMMAND) as answer:
                return json.load(answer)["value"]
        except urllib.request.HTTPError as error:
            raise HostRingError(f"{path}: {error.read(2000).decode(errors='replace')}") from error

    def _ask(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        return self._request("POST" if body is not None else "GET", f"/session/{self._session}{path}", body)

    def cdp(self, command: str, **params: Any) -> Any:
        """Send a command of the Chrome DevTools Protocol."""
        return self._ask("/goog/cdp/execute", {"cmd": command, "params": params})

    def look(self, width: int, *, dark: bool = False, media: str = "screen", height: int = 900) -> None:
        """Set the width of the window, the colour scheme and the medium."""
        phone = width < 600
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.cdp("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def open(self, html: str) -> None:
        """Load a page from a file, so that it has no server to load anything from."""
        (self._root / "tmp/page.html").write_text(html, encoding="utf-8")
        self.go("file:///tmp/page.html")

    def add(self, folder: Path, place: str) -> None:
        """Copy a folder to where the browser reads files."""
        shutil.copytree(folder, self._root / place.strip("/"), dirs_exist_ok=True)

    def go(self, url: str) -> None:
        self._ask("/url", {"url": url})

    def run(self, script: str, *arguments: Any) -> Any:
        """Return the result of a function body; a promise is awaited."""
        return self._ask("/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, script: str, what: str, timeout: float = 30.0) -> Any:
        """Return the first true result of a function body. A page that is being loaded counts as no result."""
        until = time.monotonic() + timeout
        last = ""
        while time.monotonic() < until:
            try:
                if found := self.run(script):
                    return found
                last = ""
            except HostRingError as error:
                last = f" ({error})"
            time.sleep(0.1)
        shown = self.run("return document.body?.innerText ?? ''")
        raise HostRingError(f"{what}: not so after {timeout:g} s{last}\n--- the page shows:\n{shown}")

    def log(self) -> list[str]:
        """Return the messages of the console since the last call."""
        return [f"{entry['level']}: {entry['message']}" for entry in self._ask("/se/log", {"type": "browser"})]

    def picture(self, path: Path, height: float = 0) -> None:
        """Save the page as PNG, from its top; ``height`` 0 is all of it."""
        size = self.cdp("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": height or size["height"], "scale": 1}
        data = self.cdp("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)["data"]
        path.write_bytes(base64.b64decode(data))

    def print(self) -> bytes:
        """Return the page as PDF, on A4."""
        size = {"paperWidth": 8.27, "paperHeight": 11.69}
        return base64.b64decode(self.cdp("Page.printToPDF", **size)["data"])

    def violations(self) -> list[str]:
        """Return what axe finds, as rule and first element."""
        axe = (self._root / AXE_FILE).read_text(encoding="utf-8")
        script = (
            f"{axe};\nreturn axe.run().then(r => r.violations.map("
            "v => `${v.id}: ${v.nodes.map(n => n.html + ' ' + (n.any[0]?.message ?? '')).slice(0, 3).join('; ')}`))"
        )
        found: list[str] = self.run(script)
        return found

    def close(self) -> None:
        self._request("DELETE", f"/session/{self._session}")


@contextmanager
def opened(say: Say) -> Iterator[Page]:
    """Start the browser, and end it afterwards. Raises Unavailable where none can be made."""
    container_host.sweep()
    with (
        contextlib.closing(browser_image(say)) as image,
        scratch(image) as root,
        chrooted(root),
        _driver(root) as address,
    ):
        page = Page(address, root)
        try:
            yield page
        finally:
            page.close()


@contextmanager
def _driver(root: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    argv = ["chroot", str(root), "chromedriver", f"--port={port}"]
    with subprocess.Popen(argv, env=CHROOT_ENV, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as driver:
        try:
            _wait_for(port)
            yield f"http://127.0.0.1:{port}"
        finally:
            driver.terminate()


def _wait_for(port: int) -> None:
    until = time.monotonic() + START
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > until:
                raise HostRingError(f"chromedriver does not listen after {START:.0f} s") from None
            time.sleep(0.1)
        else:
            return


if __name__ == "__main__":
    built = browser_image(print)
    print(process.run(["du", "-sm", str(built.layers[-1].path)], timeout=60).stdout.decode().strip())
    with opened(print) as tab:
        tab.open("<h1>x</h1>")
        print(tab.run("return navigator.userAgent"), tab.violations())
