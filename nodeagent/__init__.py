# SPDX-License-Identifier: Apache-2.0
"""nodeagent: one daemon per host that brings the host to the state that a MachineConfig describes.

Packages, from the inside out: ``core`` (pure data and decisions), ``domains`` (the rules of each configuration area),
``settings`` and ``log``, ``host`` (adapters to this machine), ``kube`` (adapters to the API server), ``fence`` (limits
on disk I/O while a deployment is staged), ``agent`` (the daemon), ``cli``.
"""

__version__ = "0.1.0"
