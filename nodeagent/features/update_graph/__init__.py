# SPDX-License-Identifier: Apache-2.0
"""Versions of the OS that no update may skip: rules of the admin, an update graph, and what the host must have."""
