#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ring 1 on every supported Python that this machine has besides the one of the development environment.
# On 3.13 with the oldest versions of libraries that pyproject.toml allows: the RPM for the host's Python uses those of
# the host, and Debian 13 has msgspec 0.19.
# Usage: versions.sh VENV "VERSION..." [OPTION OF PYTEST]... The environments are kept in VENV/versions.
set -euo pipefail
venv=$1 versions=$2
shift 2
is() { [ "$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = "$2" ]; }

find_python() {
    local candidate
    for candidate in "python$1" "/usr/bin/python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
        if is "$candidate" "$1"; then
            echo "$candidate"
            return
        fi
    done
}

for version in $versions; do
    if is "$venv/bin/python" "$version"; then
        continue
    fi
    python=$(find_python "$version")
    if [ -z "$python" ]; then
        echo "== Python $version is not on this machine"
        continue
    fi
    echo "== ring 1 on $("$python" -V)"
    UV_PROJECT_ENVIRONMENT=$venv/versions/$version "$venv/bin/uv" sync --frozen --all-groups --no-group fuzz --quiet --python "$python"
    if [ "$version" = 3.13 ]; then
        "$venv/bin/uv" pip install --quiet --upgrade --python "$venv/versions/$version/bin/python" --resolution lowest-direct -r pyproject.toml
    fi
    "$venv/versions/$version/bin/pytest" -q -n 4 --dist worksteal "$@" tests
done
echo "make versions: passed on all that are here"
