# SPDX-License-Identifier: Apache-2.0
"""rpm-ostree over D-Bus: the ``Deployments`` port. ``adapter`` is the way in; everything else is a part of it."""
