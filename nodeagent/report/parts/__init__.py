# SPDX-License-Identifier: Apache-2.0
"""The parts of the status that belong to features, one module for each."""
