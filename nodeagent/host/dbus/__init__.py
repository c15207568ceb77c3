# SPDX-License-Identifier: Apache-2.0
"""The system bus: client, exported object and authorization."""
