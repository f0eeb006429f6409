#!/usr/bin/env bash
# Runs every fuzz target of the repository, one after another, and notes in a file of
# tab-separated lines how far each got. Started again, it goes on with those that have
# not had their time yet. `make fuzz` is the same.
#
#   scripts/fuzz.sh                       all targets
#   scripts/fuzz.sh ./host/data/...       those of some packages
#   scripts/fuzz.sh FuzzParse metrics/    those whose package or name has one of these in it
#   scripts/fuzz.sh --list                only say which targets there are
#   scripts/fuzz.sh --table               the results so far, as Markdown
#
#   FUZZTIME=10m     time for each target
#   WORKERS=1        processes that try inputs
#   RESULTS=docs/results/fuzz.tsv   what was run; without the file everything begins anew
#
# A failing input is kept in testdata/fuzz of the package, where every `go test` tries
# it again. Inputs that only reach new code stay in Go's cache; scripts/fuzz-corpus.sh
# chooses the few of them that go into the repository.
set -euo pipefail
cd "$(dirname "$0")/.."

fuzztime=${FUZZTIME:-10m}
workers=${WORKERS:-1}
results=${RESULTS:-docs/results/fuzz.tsv}

# targets prints "package function" for each target, found in the source, so that a new
# one needs no list.
targets() {
	find . -name '*_test.go' -not -path '*/testdata/*' -not -path '*/templates/*' -exec \
		grep -HE '^func Fuzz[A-Za-z0-9_]*\(f \*testing\.F\)' {} + |
		sed -E 's|^(.*)/[^/]*_test\.go:func (Fuzz[A-Za-z0-9_]*).*|\1 \2|' | sort -u
}

# selected tells whether "package function" was asked for on the command line.
selected() {
	local target=$1 want
	shift
	[ $# -eq 0 ] && return 0
	for want in "$@"; do
		want=${want%/...}
		case "$target" in *"$want"*) return 0 ;; esac
	done
	return 1
}

# seconds turns 90s, 10m or 1h into seconds.
seconds() {
	case "$1" in
	*h) echo $((${1%h} * 3600)) ;;
	*m) echo $((${1%m} * 60)) ;;
	*s) echo "${1%s}" ;;
	*) echo "FUZZTIME=$1: want a number with s, m or h, such as 10m" >&2; return 2 ;;
	esac
}

# finished tells whether a target has had its time without a failure since the file of
# results was begun.
finished() {
	[ -f "$results" ] && awk -F '\t' -v p="$1" -v t="$2" -v s="$want" \
		'$1 == p && $2 == t {ok = ($7 == "ok") ; if (ok) had += $3; else had = 0} END {exit !(had >= s)}' "$results"
}

# fuzz runs one target and adds its line to the results.
fuzz() {
	local package=$1 target=$2 log outcome=ok last executions=0 new=0 began took
	log=$(mktemp)
	began=$(date +%s)
	printf '== %s %s, %s\n' "$package" "$target" "$fuzztime"
	go test "$package" -run '^$' -fuzz "^$target\$" -fuzztime "$fuzztime" -fuzzminimizetime 1000x -parallel "$workers" >"$log" 2>&1 || outcome=failed
	took=$(($(date +%s) - began))
	last=$(grep -E '^fuzz: elapsed: .* execs: ' "$log" | tail -1 || true)
	if [[ $last =~ execs:\ ([0-9]+) ]]; then executions=${BASH_REMATCH[1]}; fi
	if [[ $last =~ new\ interesting:\ ([0-9]+) ]]; then new=${BASH_REMATCH[1]}; fi
	# The time counts that was spent on inputs, not that of the build.
	if [[ $last =~ elapsed:\ (([0-9]+)h)?(([0-9]+)m)?([0-9]+)s ]]; then
		took=$((${BASH_REMATCH[2]:-0} * 3600 + ${BASH_REMATCH[4]:-0} * 60 + BASH_REMATCH[5]))
	fi
	[ "$outcome" = ok ] || cat "$log"
	rm -f "$log"
	[ -f "$results" ] || printf 'package\ttarget\tseconds\texecutions\tnew inputs\tcommit\toutcome\tdate\n' >"$results"
	printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$package" "$target" "$took" "$executions" "$new" \
		"$(git rev-parse --short HEAD 2>/dev/null || echo -)" "$outcome" "$(date -u +%F)" >>"$results"
	printf '%s: %s executions in %s s, %s new inputs\n' "$outcome" "$executions" "$took" "$new"
	[ "$outcome" = ok ]
}

# table adds up what was run of each target.
table() {
	printf '| package | target | seconds | executions | failures | last run |\n|---|---|--:|--:|--:|---|\n'
	[ -f "$results" ] || return 0
	awk -F '\t' 'NR > 1 {
			key = $1 " | `" $2 "`"
			if (!(key in seconds)) order[++n] = key
			seconds[key] += $3; executions[key] += $4; failures[key] += $7 != "ok"; last[key] = $8
			s += $3; e += $4; f += $7 != "ok"
		}
		END {
			for (i = 1; i <= n; i++) {k = order[i]; print "| " k " | " seconds[k] " | " executions[k] " | " failures[k] " | " last[k] " |"}
			print "| all | " n " targets | " s " | " e " | " f " | |"
		}' "$results"
}

want=$(seconds "$fuzztime")
case "${1:-}" in
--list) targets; exit ;;
--table) table; exit ;;
esac
failed=0
while read -r package target; do
	selected "$package $target" "$@" || continue
	finished "$package" "$target" && continue
	fuzz "$package" "$target" </dev/null || failed=$((failed + 1))
done < <(targets)
if [ "$failed" -gt 0 ]; then
	echo "$failed targets failed: their inputs are in testdata/fuzz of the packages, $results has the list" >&2
	exit 1
fi
