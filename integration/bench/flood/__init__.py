# SPDX-License-Identifier: Apache-2.0
"""How much longer an update takes while unprivileged users flood the daemon with reads."""
