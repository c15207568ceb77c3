#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two commands at once. The output of the first goes into a file, and follows that of the second.
# Fails if one of them fails.
# Usage: beside.sh FILE COMMAND... -- COMMAND...
set -euo pipefail
log=$1
shift
first=()
while [ "$1" != -- ]; do
    first+=("$1")
    shift
done
shift

echo "== ${first[*]}: its output is in $log, and follows"
true >"$log"
set -m # a group of its own, which Ctrl-C does not reach
"${first[@]}" >"$log" 2>&1 &
set +m
beside=$!
trap 'kill -INT -- "-$beside" 2>/dev/null && wait "$beside" || true' EXIT
echo "== $*"
code=0
"$@" || code=$?
echo "== ${first[*]}"
tail -n +1 -f --pid="$beside" "$log"
wait "$beside" || code=$?
exit "$code"
