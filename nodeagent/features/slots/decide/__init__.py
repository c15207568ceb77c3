# SPDX-License-Identifier: Apache-2.0
"""Which slot is free, how long a pool pauses, and whose turn it is."""
