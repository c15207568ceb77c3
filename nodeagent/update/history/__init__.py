# SPDX-License-Identifier: Apache-2.0
"""The history of updates: outcome, trail and entry."""
