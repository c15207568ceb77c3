# SPDX-License-Identifier: Apache-2.0
"""Coordinate with a Kubernetes cluster: node lease, drain, readiness, other actors, the desired config, and reports."""
