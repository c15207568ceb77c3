#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tries from within the sandbox of a unit what its program must not be able to do, and prints what it could.
can() {
    what=$1
    shift
    if "$@" >/dev/null 2>&1; then echo "probe: can $what"; fi
}

echo "probe: begins as $(id -u)"
can "start a unit" timeout 10 systemd-run --wait --quiet true
can "start a unit by the private socket" env DBUS_SYSTEM_BUS_ADDRESS=unix:path=/run/systemd/private timeout 10 systemctl list-units
can "call the agent" timeout 10 busctl call org.nodeagent.Agent1 /org/nodeagent/Agent1 org.nodeagent.Agent1.Manager History u 1
for path in "$@"; do
    can "read $path" head -c 1 "$path"
    # shellcheck disable=SC2016
    can "write $path" sh -c 'echo x >>"$1"' write "$path"
done
for directory in /etc/nodeagent /etc/nodeagent/config.d /run/nodeagent /run/nodeagent/config.d /var/lib/nodeagent /etc /usr/bin /run/systemd/system; do
    can "write in $directory" touch "$directory/probe"
done
for name in /run/dbus/system_bus_socket /run/systemd/private /run/systemd/notify; do
    can "see $name" test -e "$name"
done
can "become another user" setpriv --reuid=2 true
can "mount" mount -t tmpfs none /mnt
can "signal processes of others" kill -0 1
echo "probe: ends"
