# SPDX-License-Identifier: Apache-2.0
"""Judge whether nodeagent is installed as it has to be. Adapters read the facts (``facts``)."""
