"""Builds the self-contained tree that hosts install, and the images made of it.

Fedora CoreOS and RHEL CoreOS carry no Python, so the tree brings its own. Everything in it comes from lock files
(`packaging/interpreter.toml`, `uv.lock`) or from this repository, and the same inputs give the same bytes.
Standard library only: this runs in whatever Python a build machine has. Reasons: docs/development/packaging.md.
"""
