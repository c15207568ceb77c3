# SPDX-License-Identifier: Apache-2.0
"""What clients of a control plane notice while changes go through its three nodes."""
