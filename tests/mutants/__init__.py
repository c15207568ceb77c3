# SPDX-License-Identifier: Apache-2.0
"""Change one decision of the product at a time, and see whether the nearest tests of ring 1 fail."""
