# SPDX-License-Identifier: Apache-2.0
"""The program. Standard library and GObject introspection only: nothing of this repository outside this folder."""
