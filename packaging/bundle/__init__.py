# SPDX-License-Identifier: Apache-2.0
"""Build the self-contained tree that hosts install, and its images.

Fedora CoreOS and RHEL CoreOS have no Python, so the tree has its own. Everything in it comes from lock files
(`packaging/interpreter.toml`, `uv.lock`) or from this repository, and the same inputs give the same bytes. The build
runs in the development environment. Reasons: docs/development/packaging.md.
"""
