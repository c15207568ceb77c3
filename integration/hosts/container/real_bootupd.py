# SPDX-License-Identifier: Apache-2.0
"""bootupd itself, built once from the registry of Rust crates.

python -m integration.hosts.container.real_bootupd    fills the cache, and prints how long that took and where it is
"""

from __future__ import annotations

from typing import Final

from integration.hosts.cargo import Program

VERSION: Final = "0.3.2"
# Its own lock file decides the crates. cargo reports an older Rust than it needs only after the download.
BOOTUPD: Final = Program(
    name="bootupd",
    version=VERSION,
    source=("bootupd", "--version", VERSION),
    content=b"",
    takes="ten minutes",
    tools=("cargo", "pkg-config", "openssl.pc"),
    rust="1.90",
)


if __name__ == "__main__":
    BOOTUPD.main()
