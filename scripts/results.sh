#!/usr/bin/env bash
# Runs the studies whose results stand in docs/, and keeps these in docs/results: what is
# kept already, and not stale, is not run again. Takes hours on two cores; it can be
# interrupted, and started again on another machine with what was kept by then.
# `make results` builds everything first, and writes the documents at the end.
#
#   scripts/results.sh                    all
#   scripts/results.sh effect toy         only these
#   scripts/results.sh rivals             the study of docs/lab/rivals.md, which is not among all: see there what it takes
#   ONLY="--only bits=4" scripts/results.sh effect     only some cells
#   AGAIN=1 scripts/results.sh toy        trains what is kept as well, keeps nothing, and tells
#                                         whether the results come out as they are kept; cells
#                                         that studies/toy has already are not trained again
set -eu
cd "$(dirname "$0")/.."
cage=bin/cage
kept=docs/results

if [ $# -eq 0 ]; then
	set -- toy quadratic effect main-small scaling-small ablation-small optimizers-small lotion-small schedule-small precision-small tasks-small fully-quantized
fi
scripts/paper-data.sh tasks
failed=
for name in "$@"; do
	printf '\n== Study %s\n' "$name"
	results=$kept/$name.json
	file=examples/paper/$name.toml
	if [ ! -f "$file" ]; then file=examples/studies/$name.toml; fi
	known=
	if [ -f "$results" ] && [ -z "${AGAIN:-}" ]; then known="--kept $results"; fi
	if [ -n "${AGAIN:-}" ] && [ -d "studies/$name" ]; then echo "cells that are done in studies/$name are not trained again"; fi
	# shellcheck disable=SC2086 # lists of flags
	if "$cage" study run "$file" $known ${ONLY:-}; then rc=0; else rc=$?; fi
	if [ "$rc" -eq 130 ]; then exit "$rc"; fi # interrupted
	if [ -n "${AGAIN:-}" ]; then
		"$cage" study check "$file" --kept "$results" || rc=$?
		if [ "$rc" -ne 0 ]; then failed="$failed $name"; fi
		continue
	fi
	"$cage" study keep "$file" --out "$results"
	if [ "$rc" -ne 0 ]; then exit "$rc"; fi
done
if [ -n "$failed" ]; then
	echo "not as they are kept:$failed" >&2
	exit 1
fi
