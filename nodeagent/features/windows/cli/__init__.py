# SPDX-License-Identifier: Apache-2.0
"""The command of the feature, and its option of `nodeagent apply`."""
