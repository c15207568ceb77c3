# SPDX-License-Identifier: Apache-2.0
"""Read the facts that ``decide`` judges. Nothing is changed on the host."""
