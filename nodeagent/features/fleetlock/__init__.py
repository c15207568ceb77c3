# SPDX-License-Identifier: Apache-2.0
"""Slots of a fleet without Kubernetes, which a FleetLock server gives."""
