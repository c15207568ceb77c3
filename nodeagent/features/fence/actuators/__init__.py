# SPDX-License-Identifier: Apache-2.0
"""The limits that the fence sets: cgroups, the queue of the disk, priorities, writeback."""
