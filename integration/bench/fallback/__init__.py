# SPDX-License-Identifier: Apache-2.0
"""How long a fallback reboot takes on a test host, soft and full."""
