# SPDX-License-Identifier: Apache-2.0
"""Soft reboots: where no kernel must start, the services start again under the one that runs."""
