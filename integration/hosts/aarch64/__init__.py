# SPDX-License-Identifier: Apache-2.0
"""A virtual machine of aarch64, without KVM: the package for that architecture in a booted ostree system."""
