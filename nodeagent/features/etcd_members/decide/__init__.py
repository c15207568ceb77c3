# SPDX-License-Identifier: Apache-2.0
"""Decide the next step of a member that joins, leaves, or replaces a lost one."""
