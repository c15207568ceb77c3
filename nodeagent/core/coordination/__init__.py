# SPDX-License-Identifier: Apache-2.0
"""Coordination with other actors: lease, slots, drain and windows, as data."""
