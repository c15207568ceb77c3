# SPDX-License-Identifier: Apache-2.0
"""What is done to units and static pods, and whether they are well."""
