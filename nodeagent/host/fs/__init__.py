# SPDX-License-Identifier: Apache-2.0
"""Files of the host, written atomically and without following symlinks out of place."""
