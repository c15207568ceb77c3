# SPDX-License-Identifier: Apache-2.0
"""The command line: one module for each command; helpers begin with an underscore."""
