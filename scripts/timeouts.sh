#!/usr/bin/env bash
# Runs go test with these arguments, and prints what it does. But of a package that the limit of its
# time has ended, it prints one line with the tests that were running; bin/goroutines.txt gets what
# all goroutines were doing.
set -uo pipefail
mkdir -p bin
"$@" | awk '
function finish() {
	sub(/^panic: /, "", ended)
	print ended ", running " tests " (bin/goroutines.txt has all goroutines)"
	ended = ""
}
/^panic: test timed out after / { ended = $0; tests = "no test" }
ended && /^\t\tTest|^\t\tFuzz|^\t\tExample/ { tests = (tests == "no test" ? "" : tests ", ") substr($0, 3) }
ended && /^(FAIL|exit status|===)/ { finish() }
ended { print > "bin/goroutines.txt"; next }
{ print; fflush() }
END { if (ended) finish() }'
