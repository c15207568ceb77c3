# SPDX-License-Identifier: Apache-2.0
"""The views of the kinds of events, one module for each subject."""
