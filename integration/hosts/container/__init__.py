# SPDX-License-Identifier: Apache-2.0
"""Hosts with a real systemd, D-Bus, polkit, logind and journald, booted in containers in about a second."""
