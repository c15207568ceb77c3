# SPDX-License-Identifier: Apache-2.0
"""What a certificate must be, and which request may be approved."""
