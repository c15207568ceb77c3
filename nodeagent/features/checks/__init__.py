# SPDX-License-Identifier: Apache-2.0
"""Checks of the admin in /etc/nodeagent/checks, which decide whether an update goes on."""
