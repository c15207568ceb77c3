# SPDX-License-Identifier: Apache-2.0
"""The course of an update, from the desired config to its end."""
