# SPDX-License-Identifier: Apache-2.0
"""The report: the only writer of the status, and its sinks."""
