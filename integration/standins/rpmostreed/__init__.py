# SPDX-License-Identifier: Apache-2.0
"""A stand-in for rpm-ostreed: the real D-Bus interfaces, real work on a real libostree sysroot, and faults on demand.

`standin/` is the program. It runs on the guest's own Python with python3-gi and gir1.2-ostree-1.0, and shares no code
with nodeagent: it is made from what the real daemon does, so that both can be wrong independently. `install.py` puts it
into a root filesystem; README.md says what is real, what is faked, and which faults can be injected.
"""
