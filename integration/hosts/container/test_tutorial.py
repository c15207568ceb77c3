# SPDX-License-Identifier: Apache-2.0
"""docs/tutorial.md has what a terminal shows: the plans, the questions, progress and the end of each update."""

from __future__ import annotations

import pytest

from integration import demo_shell, tutorial
from integration.hosts.container.conftest import HostMaker
from integration.hosts.container.image import Image


@pytest.mark.finding(
    "users: output of a terminal", "The tutorial has what a terminal shows, questions and progress included."
)
@pytest.mark.long
@pytest.mark.slow
def test_the_tutorial_is_what_a_terminal_shows(make_host: HostMaker, agent_image: Image) -> None:
    host = make_host(agent_image)
    demo_shell.boot(host)
    page = tutorial.PAGE.read_text()
    assert tutorial.stable(tutorial.performed(host, page)) == tutorial.stable(page), (
        "run python -m integration.tutorial"
    )
