# SPDX-License-Identifier: Apache-2.0
"""The metrics, alerting rules and queries of the dashboard, in a real Prometheus."""
