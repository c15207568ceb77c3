# SPDX-License-Identifier: Apache-2.0
"""The store: records, configs and history in one SQLite file."""
