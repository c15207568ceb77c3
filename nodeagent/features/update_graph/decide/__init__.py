# SPDX-License-Identifier: Apache-2.0
"""Decide whether the OS may go from one version to another at once. Adapters read the files, the graph and the host."""
