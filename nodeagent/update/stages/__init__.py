# SPDX-License-Identifier: Apache-2.0
"""The stages of an update, and what they need."""
