# SPDX-License-Identifier: Apache-2.0
"""The priorities of syslog(3). 0 to 2 mean that the system is unusable, which no event of the agent does."""

ERROR, WARNING, NOTICE, INFO, DEBUG = 3, 4, 5, 6, 7
