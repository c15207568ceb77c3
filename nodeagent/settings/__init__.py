# SPDX-License-Identifier: Apache-2.0
"""The settings of the agent: schema, loading and repair."""
