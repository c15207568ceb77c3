# SPDX-License-Identifier: Apache-2.0
from nodeagent.cli.main import entry

entry()
