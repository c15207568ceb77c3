# SPDX-License-Identifier: Apache-2.0
"""What every host with deployments of libostree has, whichever program serves them: its files and its commands."""
