# SPDX-License-Identifier: Apache-2.0
"""Alerts of a Prometheus that must not fire when an update begins to drain or to stop the node."""
