# SPDX-License-Identifier: Apache-2.0
"""The ports of an update, as protocols. Adapters in ``host``, ``kube`` and ``fence`` implement them."""
