# SPDX-License-Identifier: Apache-2.0
"""The course of an update as a page: bars on one axis over its boots, and the same update with a drain and a reboot."""
