# SPDX-License-Identifier: Apache-2.0
"""A place to run the stand-in in: a private bus, and a tiny system that libostree takes for the booted one.

Nothing boots. In mount and PID namespaces of its own, the directory of a deployment is `/`, so that its device and
inode are what libostree looks for; /usr is that of a Debian with ostree. Real staging and finalization follow.
"""
