# SPDX-License-Identifier: Apache-2.0
"""Adapters to a cluster. Loaded only where one is configured, because the client library is larger than the agent."""
