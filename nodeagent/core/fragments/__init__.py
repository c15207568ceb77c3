# SPDX-License-Identifier: Apache-2.0
"""One config from several MachineConfigs, as the machine-config-controller renders those of a pool."""
