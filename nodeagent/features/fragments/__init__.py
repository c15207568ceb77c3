# SPDX-License-Identifier: Apache-2.0
"""A directory of MachineConfigs as the desired config: they are merged, and the result is the desired config."""
