# SPDX-License-Identifier: Apache-2.0
"""nodeagent: one daemon per host that brings the host to the state that a MachineConfig describes.

Packages, from the inside out: ``core`` (pure data and decisions), ``domains`` (the rules of each configuration area),
``update`` (the course of an update), ``report`` (pure views), ``settings`` and ``log``, ``host`` (adapters to this
machine), ``kube`` (adapters to the API server), ``features`` (what can be left out), ``agent`` (the daemon), ``cli``.
"""

__version__ = "0.1.0"
