#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs in the guest: starts a service and waits until what it runs has ended, without asking again and again, which costs.
set -euo pipefail
rm -f /run/bench/ended
mkfifo /run/bench/ended
systemctl start "$1"
status=$(cat /run/bench/ended)
while [ "$(systemctl show --value --property=SubState "$1")" = running ]; do sleep 0.2; done
exit "$status"
