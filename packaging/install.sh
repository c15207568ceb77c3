#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs nodeagent from its tar, or upgrades it: install.sh TAR [ROOT]
# For hosts and image builds where /usr can be written and no package manager does this; on other hosts use the sysext image.
# Removes files of the installed version that the new one does not have. Does not start or restart anything.
set -eu
tar=$1
root=${2:-/}
manifest=${root%/}/usr/lib/nodeagent/manifest
before=$(mktemp)
trap 'rm -f "$before"' EXIT
if [ -e "$manifest" ]; then cat "$manifest" >"$before"; fi
# tar removes a file before it writes the new one, so a running agent keeps the files it has open.
# The host may have links and its own modes where the archive has directories; they stay.
tar --extract --gzip --file "$tar" --directory "$root" --no-overwrite-dir --keep-directory-symlink
grep --line-regexp --fixed-strings --invert-match --file "$manifest" "$before" | while IFS= read -r name; do
    rm -f "${root%/}/$name"
done
find "${root%/}/usr/lib/nodeagent" -depth -type d -empty -delete
