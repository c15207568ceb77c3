# SPDX-License-Identifier: Apache-2.0
"""Coordination with other actors: lease, slots, drain, windows and maintenance, as data."""
