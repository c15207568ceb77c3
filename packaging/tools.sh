#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Finds and installs the programs that building and testing need. The one place that knows apt-get and dnf.
#
#   tools.sh install NAME...   install those of these programs that are missing, as root; else say exactly what is missing
#   tools.sh boot NAME...      the same for what boots test hosts, which itself is for root only
#   tools.sh missing NAME...   say what is missing of these programs, and change nothing
#   tools.sh python [PYTHON]   the path of a Python that is new enough and has venv; PYTHON is preferred
#   tools.sh distribution      debian, fedora or unknown
#   tools.sh list              all programs of tools.txt, and the command that installs the missing ones
#
# A NAME is a program of packaging/tools.txt, or a word of its last column for all programs with that word. The exit
# status is 1 if something is missing; the last line of standard error then has it, and the command that installs it.
# Only bash is needed: a minimal image has little else.
set -euo pipefail
table=${BASH_SOURCE[0]%/*}/tools.txt
need_root="test hosts need root: systemd-nspawn and overlay mounts are for root only"
# Only tests set these.
os_release=${NODEAGENT_OS_RELEASE:-/etc/os-release}
keyrings=${NODEAGENT_KEYRINGS:-/usr/share/keyrings}
# The PATH of users other than root often lacks these.
PATH=$PATH:/usr/sbin:/sbin

say() { printf '%s\n' "$*"; }
fail() {
    say "$*" >&2
    exit 1
}
has() { command -v "$1" >/dev/null; }

programs=()
declare -A package_debian package_fedora word
while read -r program debian fedora group; do
    [[ $program == "" || $program == \#* ]] && continue
    programs+=("$program")
    package_debian[$program]=$debian package_fedora[$program]=$fedora word[$program]=$group
done <"$table"

# The distribution decides, not the programs: mmdebstrap brings apt-get to Fedora, and Debian has a dnf.
find_family() {
    local ID='' ID_LIKE='' line
    if [ -r "$os_release" ]; then
        while read -r line; do
            line=${line//[\"\']/}
            case $line in ID=*) ID=${line#*=} ;; ID_LIKE=*) ID_LIKE=${line#*=} ;; esac
        done <"$os_release"
    fi
    case " $ID $ID_LIKE " in
    *" debian "* | *" ubuntu "*) family=debian ;;
    *" fedora "* | *" rhel "* | *" centos "*) family=fedora ;;
    *) if has apt-get; then family=debian; elif has dnf; then family=fedora; else family=unknown; fi ;;
    esac
}

python_is_good() { "$1" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3 python3.14 python3.13 python3.12 python3.11; do
        if has "$candidate" && python_is_good "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

is_here() {
    case $1 in
    python3) find_python >/dev/null ;;
    # The keys of Debian 13. Debian 12 got them by an update of the package, so an older one may lack them.
    debian-archive-keys)
        compgen -G "$keyrings/debian-archive-trixie-stable.*" >/dev/null ||
            { [ "$family" != debian ] && compgen -G "$keyrings/debian-archive-keyring.*" >/dev/null; }
        ;;
    # Fedora has another name for it.
    grub-editenv) has grub-editenv || has grub2-editenv ;;
    # A library, by the file that its headers come with.
    *.pc) has pkg-config && pkg-config --exists "${1%.pc}" ;;
    *) has "$1" ;;
    esac
}

# Sets `absent` to the missing programs of the names.
look() {
    local name program known
    absent=()
    for name in "$@"; do
        known=
        for program in "${programs[@]}"; do
            [[ $program == "$name" || ${word[$program]} == "$name" ]] || continue
            known=1
            [[ " ${absent[*]} " == *" $program "* ]] || is_here "$program" || absent+=("$program")
        done
        [ "$known" ] || fail "$name is neither a program nor a group of ${table##*/}"
    done
}

# The packages of the absent programs on a distribution, each once.
packages() {
    local program package found=()
    for program in "${absent[@]}"; do
        local -n of="package_$1"
        for package in ${of[$program]//+/ }; do
            [[ " ${found[*]} " == *" $package "* ]] || found+=("$package")
        done
    done
    say "${found[*]}"
}

set_command() {
    case $family in
    debian) command=(apt-get install -y --no-install-recommends) ;;
    fedora) command=(dnf -y --setopt=install_weak_deps=False install) ;;
    *) command=() && return ;;
    esac
    read -ra packages < <(packages "$family")
    command+=("${packages[@]}")
}

# One line: what is missing, and what to do about it.
describe() {
    local line="missing: ${absent[*]}"
    if [ "$family" = unknown ]; then
        line+="; this system is neither Debian nor Fedora, and has neither apt-get nor dnf."
        say "$line Packages of Debian: $(packages debian). Packages of Fedora: $(packages fedora)"
    else
        set_command
        say "$line; install with: sudo ${command[*]}"
    fi
}

run() {
    local output status=0
    # No question may wait for an answer.
    output=$(DEBIAN_FRONTEND=noninteractive "$@" 2>&1 </dev/null) || status=$?
    [ "$status" = 0 ] || say "$output" >&2
    return "$status"
}

install() {
    look "$@"
    [ "${#absent[@]}" != 0 ] || return 0
    [ "$(id -u)" = 0 ] && [ "$family" != unknown ] || fail "$(describe)"
    set_command
    has "${command[0]}" || fail "$(describe) (there is no ${command[0]})"
    # Package managers fail at once where another one runs, and another worker may install the same.
    exec 9<"$table"
    ! has flock || flock 9
    look "$@"
    [ "${#absent[@]}" != 0 ] || return 0
    set_command
    say "installing with ${command[0]}: ${packages[*]}"
    if [ "$family" = debian ]; then
        run apt-get update -q || fail "$(describe) (apt-get update failed, see above)"
        # Unattended upgrades may hold the lock.
        command+=(-o DPkg::Lock::Timeout=300)
    fi
    run "${command[@]}" || fail "$(describe) (this failed, see above)"
    # The shell remembers where programs were.
    hash -r
    look "$@"
    [ "${#absent[@]}" = 0 ] || fail "$(describe) (still missing after that)"
}

boot() {
    if [ "$(id -u)" != 0 ]; then
        look "$@"
        [ "${#absent[@]}" = 0 ] || fail "$need_root; $(describe)"
        fail "$need_root"
    fi
    install "$@"
}

list() {
    local program
    look "${programs[@]}"
    for program in "${programs[@]}"; do
        case " ${absent[*]} " in
        *" $program "*) printf '  %-14s %-21s missing\n' "${word[$program]}" "$program" ;;
        *) printf '  %-14s %s\n' "${word[$program]}" "$program" ;;
        esac
    done
    [ "${#absent[@]}" = 0 ] || describe
}

find_family
action=${1:-list}
shift || true
case $action in
install) install "$@" ;;
boot) boot "$@" ;;
missing)
    look "$@"
    [ "${#absent[@]}" = 0 ] || fail "$(describe)"
    ;;
python)
    PYTHON=${1:-}
    install python3 >&2
    find_python
    ;;
distribution) say "$family" ;;
list) list ;;
*) fail "usage: $0 install|boot|missing NAME... | python [PYTHON] | distribution | list" ;;
esac
