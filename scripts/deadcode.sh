#!/usr/bin/env bash
# Looks for functions that nothing calls. It fails for those that not even a test
# reaches, for those that only tests reach, and for exceptions that are not needed any
# more. An exception is a pattern of FILE:FUNCTION with its reason.
set -euo pipefail
cd "$(dirname "$0")/.."

tool=golang.org/x/tools/cmd/deadcode@v0.50.0

uncalled='
host/compute/engine/cudaplugin\.go:.*	called in builds with the tag cuda
'
tested='
host/compute/engine/cuda(plugin|libraries)\.go:.*	called in builds with the tag cuda
(internal|host)/testing/.*/.*	for tests only
sdk/(program/reference/|sdktest/)?[a-z]+\.go:.*	what authors of plugins call
host/study/load\.go:Parse	tests and examples have their studies in their text
'
# judge says which functions on its input no exception names, and which exceptions name
# nothing there.
judge() { # exceptions, what is wrong with the rest
	local found exceptions bad
	exceptions=$(cut -f1 <<<"$1" | sed '/^$/d')
	found=$(sed -n 's/^\([^:]*\):[0-9]*:[0-9]*: unreachable func: /\1:/p')
	bad=$(
		grep -vxEf <(echo "$exceptions") <<<"$found" | sed "/^$/d; s/$/: $2/" || true
		while read -r pattern; do
			grep -qxE "$pattern" <<<"$found" || echo "$pattern: the exception is not needed any more"
		done <<<"$exceptions"
	)
	[ -z "$bad" ] || { echo "$bad"; return 1; }
}

packages=(./... ./tools/... ./examples/...)
code=0
"${GO:-go}" run "$tool" -test "${packages[@]}" | judge "$uncalled" "nothing calls it, not even a test: remove it" || code=1
"${GO:-go}" run "$tool" "${packages[@]}" | judge "$tested" "only tests call it: remove it, or move it to a file of tests" || code=1
exit $code
