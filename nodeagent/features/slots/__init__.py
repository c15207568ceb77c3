# SPDX-License-Identifier: Apache-2.0
"""Slots and order of a rollout in a cluster: how many nodes of a pool are updated at once, and which pool is first."""
