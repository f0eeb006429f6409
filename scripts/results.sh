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
#   AGAIN=1 scripts/results.sh toy        trains what is kept as well, and fails if results come
#                                         out differently: see the diff of docs/results then;
#                                         cells that studies/toy has already are not trained again
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
	"$cage" study keep "$file" --out "$results"
	if [ "$rc" -eq 0 ] && [ -n "${AGAIN:-}" ] && ! git diff --exit-code --stat "$results"; then rc=1; fi
	if [ "$rc" -ne 0 ]; then
		if [ -z "${AGAIN:-}" ]; then exit "$rc"; fi
		failed="$failed $name"
	fi
done
if [ -n "$failed" ]; then
	echo "not as they are kept:$failed" >&2
	exit 1
fi
