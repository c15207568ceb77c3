#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds CPython and its libraries from Debian's source packages, inside the tree of packaging/bundle/sandbox.py: without
# network, as an unprivileged user, always in /srv, so that no path differs from one machine to another.
#
#   build.sh MACHINE JOBS HOME PART...
#
# /srv/sources has the source packages as they were fetched, in a folder for each PART. The result is /srv/out: the
# content of HOME, licences/PART/LICENSE, and `compiler`, the versions of the programs that built it.
set -euo pipefail
machine=$1 jobs=$2 home=$3
shift 3
top=/srv
static=$top/static
# What Debian uses for its own packages, and sections that the linker can leave out. The libraries are linked into the
# modules of Python, which export none of their symbols.
hardening="-fstack-protector-strong -D_FORTIFY_SOURCE=2 -ffile-prefix-map=$top=."
flags="-O2 -fPIC -fvisibility=hidden -ffunction-sections -fdata-sections $hardening"

unpack() {
    # dpkg-source compares the files with the checksums of the .dsc, and applies Debian's patches.
    dpkg-source --extract "$top/sources/$1"/*.dsc "$top/$1"
    cd "$top/$1"
    # OpenSSL and Python have a time of their build in the result.
    SOURCE_DATE_EPOCH=$(dpkg-parsechangelog --show-field Timestamp)
    export SOURCE_DATE_EPOCH
}

licence() { install -D -m 644 "$1" "$top/out/licenses/$2/LICENSE"; }

# Replaces one line in a file; a source that does not have it fails the build.
replace() {
    grep -qxF -- "$2" "$1" || { echo "$1 has no line: $2" >&2 && exit 1; }
    awk -v old="$2" -v new="$3" '$0 == old { print new; next } { print }' "$1" >"$1.new"
    cat "$1.new" >"$1" && rm "$1.new"
}

build_zlib() {
    unpack zlib
    CFLAGS=$flags ./configure --static
    make -j"$jobs" libz.a
    install -m 644 -t "$static/lib" libz.a
    install -m 644 -t "$static/include" zlib.h zconf.h
    licence LICENSE zlib
}

build_expat() {
    unpack expat
    cd expat
    autoreconf --force --install
    ./configure --disable-shared --without-docbook --without-examples --without-tests --without-xmlwf CFLAGS="$flags"
    make -j"$jobs" -C lib
    install -m 644 -t "$static/lib" lib/.libs/libexpat.a
    install -m 644 -t "$static/include" lib/expat.h lib/expat_external.h expat_config.h
    licence COPYING expat
}

build_libffi() {
    unpack libffi
    # The tree's autoconf is older than the one that libffi names. The macros that it lacks matter to other systems.
    replace configure.ac 'AC_PREREQ([2.71])' ''
    replace configure.ac 'AC_CHECK_INCLUDES_DEFAULT' ''
    replace configure.ac 'LT_SYS_SYMBOL_USCORE' ''
    autoreconf --force --install
    ./configure --disable-shared --disable-docs --disable-builddir CFLAGS="$flags"
    make -j"$jobs"
    install -m 644 -t "$static/lib" .libs/libffi.a
    install -m 644 -t "$static/include" include/ffi.h include/ffitarget.h
    licence LICENSE libffi
}

build_mpdecimal() {
    unpack mpdecimal
    ./configure --disable-cxx --disable-shared --disable-doc CFLAGS="$flags -DNDEBUG"
    make -j"$jobs" -C libmpdec libmpdec.a
    install -m 644 -t "$static/lib" libmpdec/libmpdec.a
    install -m 644 -t "$static/include" libmpdec/mpdecimal.h
    licence COPYRIGHT.txt mpdecimal
}

build_sqlite() {
    unpack sqlite
    ./configure --disable-tcl
    make sqlite3.c
    # Upstream's defaults, without extensions loaded from files.
    # shellcheck disable=SC2086
    gcc $flags -DSQLITE_THREADSAFE=1 -DSQLITE_OMIT_LOAD_EXTENSION -c sqlite3.c -o sqlite3.o
    ar rcD "$static/lib/libsqlite3.a" sqlite3.o
    install -m 644 -t "$static/include" sqlite3.h
    licence LICENSE.md sqlite
}

build_openssl() {
    unpack openssl
    # Where Fedora, RHEL CoreOS and Debian have their authorities. The rest of the folder stays private: the openssl.cnf
    # of a host is written for the OpenSSL of the host.
    replace include/internal/common.h '#define X509_CERT_DIR OPENSSLDIR "/certs"' '#define X509_CERT_DIR "/etc/ssl/certs"'
    replace include/internal/common.h '#define X509_CERT_FILE OPENSSLDIR "/cert.pem"' \
        '#define X509_CERT_FILE "/etc/pki/tls/cert.pem"'
    # A client of TLS 1.2 and 1.3. Left out: code that is loaded from files, protocols that Python does not use, and
    # algorithms that no such client negotiates.
    local without=(
        shared apps docs tests module dso engine legacy autoload-config
        comp dtls quic ssl3 srp srtp cmp cms ts ct rfc3779 ocsp
        aria bf camellia cast gost idea md4 mdc2 rc2 rc4 rmd160 seed sm2 sm3 sm4 whirlpool
    )
    # shellcheck disable=SC2086
    ./Configure "linux-$machine" --prefix="$home" --openssldir="$home/ssl" --libdir=lib "${without[@]/#/no-}" $flags
    make -j"$jobs" build_generated
    make -j"$jobs" libcrypto.a libssl.a
    # Python looks for include and lib in one folder.
    ln -s . lib
    licence LICENSE.txt openssl
}

build_python() {
    unpack python
    # One program instead of a file for each module is what Debian does, too: fewer files to open at the start. The
    # modules with libraries stay files, which only their users load.
    local setup=Modules/Setup.stdlib.in own='^@MODULE_(_SSL|_SQLITE3|_CTYPES|_DECIMAL|PYEXPAT|_ELEMENTTREE|UNICODEDATA)_TRUE@'
    replace $setup '*@MODULE_BUILDTYPE@*' '*static*'
    {
        grep -vE "$own" $setup
        echo '*shared*'
        grep -E "$own" $setup
    } >$setup.new
    mv $setup.new $setup
    local unused=(
        _bz2 _lzma _uuid _hashlib readline _curses _curses_panel _dbm _gdbm _tkinter _lsprof _statistics
        _codecs_cn _codecs_hk _codecs_iso2022 _codecs_jp _codecs_kr _codecs_tw _multibytecodec
        _interpreters _interpchannels _interpqueues _multiprocessing _posixshmem xxsubtype xxlimited xxlimited_35
    )
    # Pseudoterminals alone would need libutil.
    local terminals=(
        ac_cv_func_openpty ac_cv_lib_util_openpty ac_cv_lib_bsd_openpty
        ac_cv_func_forkpty ac_cv_lib_util_forkpty ac_cv_lib_bsd_forkpty ac_cv_search_login_tty
        ac_cv_file__dev_ptmx ac_cv_file__dev_ptc
        ac_cv_have_decl_UT_NAMESIZE # of a header that is only included for these
    )
    unused=("${unused[@]/#/py_cv_module_}")
    local link="-L$static/lib -Wl,--exclude-libs,ALL"
    # Debian's Makefile takes LDFLAGS_NODIST, and not LDFLAGS, from configure. nice() seems broken to configure in a
    # build of the lowest priority, where nice(1) and nice(2) are the same.
    PY_UNSUPPORTED_OPENSSL_BUILD=static ./configure \
        --prefix="$home" --with-platlibdir=lib --without-ensurepip --disable-test-modules --without-static-libpython \
        --with-pkg-config=no --with-openssl="$top/openssl" --with-system-expat --with-system-libmpdec \
        "${unused[@]/%/=n/a}" "${terminals[@]/%/=no}" ac_cv_broken_nice=no \
        OPT="-DNDEBUG -O3 -Wall" CFLAGS="$hardening" \
        LDFLAGS_NODIST="-Wl,-z,relro -Wl,-z,now -Wl,--build-id=none -Wl,--as-needed -Wl,--gc-sections" \
        ZLIB_CFLAGS="-I$static/include" ZLIB_LIBS="-L$static/lib -Wl,--exclude-libs,libz.a -l:libz.a" \
        LIBFFI_CFLAGS="-I$static/include" LIBFFI_LIBS="$link -l:libffi.a" \
        LIBSQLITE3_CFLAGS="-I$static/include" LIBSQLITE3_LIBS="$link -l:libsqlite3.a -lpthread -lm" \
        LIBEXPAT_CFLAGS="-I$static/include" LIBEXPAT_LDFLAGS="$link -l:libexpat.a" \
        LIBMPDEC_CFLAGS="-I$static/include" LIBMPDEC_LIBS="$link -l:libmpdec.a -lm"
    make -j"$jobs" all
    collect "$(./python -c 'import sysconfig; print(sysconfig.get_python_version())')" "$(cat pybuilddir.txt)"
}

# Writes /srv/out; the names in it are those of an installation.
collect() {
    local library=$top/out/lib/python$1 built=$2
    mkdir -p "$top/out/bin" "$library"
    strip --strip-unneeded -o "$top/out/bin/python3" python
    cp -R --no-preserve=mode,timestamps Lib/. "$library"
    rm -rf "$library/test"
    # What the build compiled has its folder; the package compiles all of it again.
    find "$library" -name __pycache__ -prune -exec rm -rf {} +
    mkdir -p "$library/lib-dynload"
    for module in "$built"/*.so; do
        strip --strip-unneeded -o "$library/lib-dynload/${module##*/}" "$module"
    done
    # The variables of the build, but for those with its folders.
    ./python - "$built"/_sysconfigdata_*.py "$library" <<'END'
import pathlib, pprint, runpy, sys
source = pathlib.Path(sys.argv[1])
variables = runpy.run_path(str(source))["build_time_vars"]
kept = {name: value for name, value in variables.items() if "/srv" not in str(value)}
pathlib.Path(sys.argv[2], source.name).write_text("build_time_vars = " + pprint.pformat(kept) + "\n")
END
    cp --no-preserve=mode LICENSE "$library/LICENSE.txt"
    dpkg-query --show --showformat='${Package} ${Version}\n' gcc-10 binutils libc6-dev >"$top/out/compiler"
}

mkdir -p "$static/lib" "$static/include"
for part in "$@"; do
    echo "== $part"
    (build_"$part")
done
