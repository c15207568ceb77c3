# SPDX-License-Identifier: Apache-2.0
"""Operating systems as ostree commits, laid out as Fedora CoreOS and RHCOS are, to deploy on test hosts."""
