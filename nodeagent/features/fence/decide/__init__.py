# SPDX-License-Identifier: Apache-2.0
"""The decisions of the fence, without I/O."""
