# SPDX-License-Identifier: Apache-2.0
"""The commands `nodeagent bootstrap` and `nodeagent fleet approve`."""
