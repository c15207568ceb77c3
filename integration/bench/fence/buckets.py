# SPDX-License-Identifier: Apache-2.0
"""What the buckets of a histogram leave open: the bounds of a quantile, and of a number of samples."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from nodeagent.features.fence.decide.histogram import Histogram, above, quantile


class QuantileStanding(StrEnum):
    ESTIMATE = "estimate"
    TOO_FEW = "too-few"
    BEYOND = "beyond"
    """The last finite bound: ``low`` is all that is known."""


@dataclass(frozen=True, slots=True)
class Quantile:
    standing: QuantileStanding
    samples: float
    seconds: float = 0.0
    """0 if there are too few samples; the last finite bound if it is beyond."""
    low: float = 0.0
    high: float = math.inf


@dataclass(frozen=True, slots=True)
class Exceedances:
    """How many samples were above a bound; one number twice if it is a bound of a bucket."""

    least: float
    most: float


def bounded_quantile(q: float, over: Histogram) -> Quantile:
    if (seconds := quantile(q, over)) is None:
        return Quantile(QuantileStanding.TOO_FEW, over.samples)
    at = next(index for index, count in enumerate(over.counts) if count >= q * over.samples)
    low, high = over.bounds[at - 1] if at else 0.0, over.bounds[at]
    standing = QuantileStanding.BEYOND if high == math.inf else QuantileStanding.ESTIMATE
    return Quantile(standing, over.samples, seconds, low, high)


def exceedances(bound: float, over: Histogram) -> Exceedances:
    below = [c for b, c in zip(over.bounds, over.counts, strict=True) if b <= bound * (1 + 1e-9)]
    return Exceedances(above(bound, over), over.samples - (below[-1] if below else 0.0))
