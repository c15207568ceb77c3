# SPDX-License-Identifier: Apache-2.0
"""Block devices, from udev and sysfs."""
