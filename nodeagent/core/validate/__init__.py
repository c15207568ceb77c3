# SPDX-License-Identifier: Apache-2.0
"""Checks of file contents before anything is written.

``check(content)`` of a module yields the problems. They contain no text of the file, which can be a secret.
"""
