# SPDX-License-Identifier: Apache-2.0
"""Configs: from untrusted text to a validated ``MachineConfig``."""
