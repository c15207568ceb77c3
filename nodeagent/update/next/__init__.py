# SPDX-License-Identifier: Apache-2.0
"""Which update begins, and what happens between updates."""
