# SPDX-License-Identifier: Apache-2.0
"""A host in systemd-nspawn that boots from an ostree deployment, as the initramfs of a real one would have it."""
