# SPDX-License-Identifier: Apache-2.0
"""When an update may begin."""
