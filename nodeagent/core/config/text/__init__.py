# SPDX-License-Identifier: Apache-2.0
"""Untrusted text to plain data, within bounds of time and memory."""
