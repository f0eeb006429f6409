#!/usr/bin/env bash
# Runs a command whose temporary files lie in memory, because tests that keep files wait for the
# disk at each fsync. The directory has a fixed name, since go test repeats tests whose environment
# has changed; a second command at the same time gets another one. Without /dev/shm, with less than
# 8 GiB of free memory, or where programs there cannot be executed, the files lie where they always
# do.
set -euo pipefail

if [ -w /dev/shm ] && awk '/^MemAvailable/ {exit $2 < 8 * 2^20}' /proc/meminfo &&
	[ "$(df -k --output=avail /dev/shm | tail -n 1)" -gt $((4 << 20)) ]; then
	scratch=/dev/shm/cage-test-$(id -u)-$(cksum <<<"$PWD" | cut -d ' ' -f 1)
	mkdir "$scratch" 2>/dev/null || scratch=$(mktemp -d -p /dev/shm cage-test.XXXXXX)
	chmod 1777 "$scratch" # as /tmp is: some tests run plugins as another user
	trap 'chmod -R u+w "$scratch"; rm -rf "$scratch"' EXIT
	printf '#!/bin/sh\n' >"$scratch/try" && chmod +x "$scratch/try"
	if "$scratch/try" 2>/dev/null; then
		export TMPDIR=$scratch GOTMPDIR=$scratch
	fi
fi
"$@"
