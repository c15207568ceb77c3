# SPDX-License-Identifier: Apache-2.0
"""The JSON of the feature, see ``nodeagent.contract``."""

from __future__ import annotations

from typing import Annotated, Final

from nodeagent.contract.keys import Keys, about


class BusyPod(Keys):
    namespace: Annotated[str, about("its namespace")]
    name: Annotated[str, about("its name")]
    selector: Annotated[str, about("the first selector of the settings that matches it")]


class BusyPods(Keys):
    count: Annotated[int, about("how many pods were found")]
    pods: Annotated[list[BusyPod], about("the pods by namespace and name, 50 at most")]
    longest_wait: Annotated[float, about("`busy_pods.longest_wait` in seconds; 0: without end")]


STATUS: Final = {
    "busy_pods": Annotated[
        BusyPods | None, about("the pods for which an update or a maintenance waits (`BusyPods`); null without that")
    ]
}
