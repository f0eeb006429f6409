#!/usr/bin/env bash
# Runs a command so that what Go builds with C in it runs on Linux with glibc 2.28 or newer
# (2018: RHEL 8, Debian 10, Ubuntu 20.04), whatever this machine has:
#
#   scripts/old-libc.sh go build -tags cuda -o bin/cage ./cmd/cage
#   scripts/old-libc.sh --check FILE...    fails where a program needs a newer one
#
# Programs need the C library of the machine that links them, or a newer one. Zig's C compiler
# links for any: it comes from PyPI (101 MB) and goes into a virtual environment in $ZIG_DIR
# (default: cage-zig in the user's cache).
set -euo pipefail
oldest=2.28

check() {
	local file newest
	for file in "$@"; do
		newest=$(grep -aoE 'GLIBC_2\.[0-9]+' "$file" | sort -uV | tail -n 1)
		if [ "$(printf '%s\n' "GLIBC_$oldest" "$newest" | sort -V | tail -n 1)" != "GLIBC_$oldest" ]; then
			echo "$file needs $newest: it would not run on systems with glibc $oldest; build it by scripts/old-libc.sh" >&2
			return 1
		fi
	done
}

if [ "${1-}" = --check ]; then
	shift
	check "$@"
	exit
fi
if [ $# -eq 0 ]; then
	sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | sed '$d' >&2
	exit 2
fi
zig=${ZIG_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/cage-zig}
"$(dirname "$0")/venv.sh" "$zig" ziglang==0.17.1
export CGO_ENABLED=1 CC="$zig/venv/bin/python -m ziglang cc -target $(uname -m)-linux-gnu.$oldest"
exec "$@"
