#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs in the guest: the counters of a moment, one line each, then those of etcd that count.
set -euo pipefail
cat /proc/uptime
grep '^cpu ' /proc/stat
grep ' vda ' /proc/diskstats
exec 3<>/dev/tcp/127.0.0.1/2379
printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3
names='disk_(wal_fsync|backend_commit)_duration_seconds_bucket'
names+='|server_(leader_changes_seen|heartbeat_send_failures|slow_apply)_total'
grep -aE "^etcd_($names)" <&3
