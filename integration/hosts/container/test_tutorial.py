# SPDX-License-Identifier: Apache-2.0
"""The output in docs/tutorial.md is that of the commands, apart from times and ids."""

from __future__ import annotations

import pytest

from integration import demo_shell, tutorial
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.image import Image


@pytest.mark.long
def test_the_tutorial_shows_the_real_output(make_host: HostMaker, agent_image: Image) -> None:
    host = make_host(agent_image)
    demo_shell.boot(host)
    page = tutorial.PAGE.read_text()
    assert tutorial.stable(tutorial.performed(host, page)) == tutorial.stable(page), (
        "run python -m integration.tutorial"
    )
