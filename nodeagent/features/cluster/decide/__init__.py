# SPDX-License-Identifier: Apache-2.0
"""What the feature decides and reports."""
