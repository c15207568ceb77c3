# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for systemd-run and systemctl that start the program themselves, and note each call beside them."""

from __future__ import annotations

SYSTEMD_RUN = """#!/bin/sh
echo "run $*" >> "$(dirname "$0")/calls"
while [ "$1" != -- ]; do
    case "$1" in --setenv=*) export "${1#--setenv=}" ;; esac
    shift
done
shift
exec "$@"
"""
# It restarts services by the program of their name, beside it.
SYSTEMCTL = """#!/bin/sh
here=$(dirname "$0")
echo "systemctl $*" >> "$here/calls"
for unit; do :; done
case $1 in
restart) exec "$here/$unit" ;;
esac
"""
