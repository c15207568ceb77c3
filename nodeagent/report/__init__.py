# SPDX-License-Identifier: Apache-2.0
"""Reporting: the status, metrics, history and Kubernetes objects that follow from events."""
