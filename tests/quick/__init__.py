# SPDX-License-Identifier: Apache-2.0
"""``make quick``: ruff, mypy and the tests of what changed, in less than half a minute."""
