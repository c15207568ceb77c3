# SPDX-License-Identifier: Apache-2.0
"""Adapters to this machine."""
