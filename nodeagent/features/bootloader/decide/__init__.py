# SPDX-License-Identifier: Apache-2.0
"""The decisions about the bootloader, and what shim and the firmware accept."""
