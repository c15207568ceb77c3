# SPDX-License-Identifier: Apache-2.0
"""Planning: from two configs and a policy to an ordered list of actions and steps."""
