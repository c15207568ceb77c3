# SPDX-License-Identifier: Apache-2.0
"""Enablement: the links below /etc/systemd/system that start units, for all entries of a config together.

``links`` has what a set of links is, ``unit_files`` the facts of a host about units and their [Install] sections,
``install`` the links that an [Install] section names, ``presets`` the presets, and ``link_plan`` the decision which
links an update makes, replaces and removes.
"""
