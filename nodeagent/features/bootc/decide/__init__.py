# SPDX-License-Identifier: Apache-2.0
"""The pure decisions of the feature."""
