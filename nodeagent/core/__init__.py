# SPDX-License-Identifier: Apache-2.0
"""Pure data and decisions: no I/O, no clock, no asyncio."""
