# SPDX-License-Identifier: Apache-2.0
"""A really booted ostree system in a virtual machine, for what a container cannot show: boot, power, disk, kernel."""
