# SPDX-License-Identifier: Apache-2.0
"""The error of a build. Its message has the remedy."""

from __future__ import annotations


class BuildError(Exception):
    """The package cannot be built. Nothing was written to the output directory."""
