# SPDX-License-Identifier: Apache-2.0
"""Uncordon the node of a host that an update left half-way, once the node works."""
