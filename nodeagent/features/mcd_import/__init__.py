# SPDX-License-Identifier: Apache-2.0
"""Import of the config and the backups of a machine-config-daemon that managed this host before."""
