#!/usr/bin/env bash
# Runs a command whose temporary files lie in memory, because tests that keep files wait for the
# disk at each fsync. The directory has a fixed name, since go test repeats tests whose environment
# has changed. It stays, empty; what a killed command has left in it is removed by the next. A
# second command at the same time gets another directory. Without /dev/shm, with less than 8 GiB of
# free memory, or where programs there cannot be executed, the files lie where they always do.
set -euo pipefail

# clear removes what is in the directory.
clear() {
	chmod -R u+w "$scratch"
	find "$scratch" -mindepth 1 -delete
}

if [ -w /dev/shm ] && awk '/^MemAvailable/ {exit $2 < 8 * 2^20}' /proc/meminfo &&
	[ "$(df -k --output=avail /dev/shm | tail -n 1)" -gt $((4 << 20)) ]; then
	scratch=/dev/shm/cage-test-$(id -u)-$(cksum <<<"$PWD" | cut -d ' ' -f 1)
	mkdir -p "$scratch"
	exec {lock}<"$scratch" # and so for the command: the directory is in use as long as it lives
	if [ ! -L "$scratch" ] && [ -O "$scratch" ] && flock --nonblock "$lock"; then
		clear
		trap clear EXIT
	else
		scratch=$(mktemp -d -p /dev/shm cage-test.XXXXXX)
		trap 'clear; rmdir "$scratch"' EXIT
	fi
	chmod 1777 "$scratch" # as /tmp is: some tests run plugins as another user
	printf '#!/bin/sh\n' >"$scratch/try" && chmod +x "$scratch/try"
	if "$scratch/try" 2>/dev/null; then
		export TMPDIR=$scratch GOTMPDIR=$scratch
	fi
fi
"$@"
