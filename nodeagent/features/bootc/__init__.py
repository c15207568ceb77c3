# SPDX-License-Identifier: Apache-2.0
"""Deployments of the OS on a host that bootc updates: images, staged by libostree. bootc itself is never called."""
