#!/usr/bin/env bash
# Runs what is meant for a GPU on XLA's client for processors, in this machine's memory.
#
#   scripts/xla.sh             the tests that look at steps, evaluations, replicas and faults,
#                              and the conformance kit on some plugins
#   scripts/xla.sh COMMAND...  any command: the device "cuda" of a cage built with the tag
#                              cuda, and of tests, has 4 GPUs that are processors
#
# A PJRT plugin (host/testing/pjrtrecord) hands programs to a process of Python, in which
# XLA compiles and executes them. JAX, which has XLA, comes from PyPI (600 MB) and goes into
# a virtual environment in $XLA_DIR (default: cage-xla in the user's cache). Where there is
# no C compiler, no Python or no JAX, the tests are skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
name=xla
work=${XLA_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/cage-xla}
unavailable=0
if [ $# -gt 0 ]; then
	unavailable=1 # an error for a command, none for the tests
fi
. scripts/pjrtrecord.sh

command -v python3 >/dev/null || missing "there is no python3"
install python3 "$work" jax==0.10.2 jaxlib==0.10.2 ml-dtypes==0.6.0 numpy==2.4.6 opt-einsum==3.4.0 scipy==1.17.1
record
export CAGE_RECORD_DEVICES=4 CAGE_RECORD_LINGER=1 CAGE_RECORD_PYTHON=$work/venv/bin/python
export CAGE_RECORD_SCRIPT=$PWD/host/testing/pjrtrecord/testdata/execute.py
export GOGC=400 CAGE_TEST_DEVICE=cuda CAGE_TEST_XLA=$work/venv/bin/python
if [ $# -gt 0 ]; then
	exec "$@"
fi

tags=cuda,netgo,osusergo # net and os/user without cgo, as builds without CUDA have compiled them
# check PACKAGE TESTS runs the tests of a package whose names match.
check() {
	go test -v -vet=off -tags "$tags" -count=1 -timeout 20m "$1" -run "$2"
}

# XLA compiles a program on one processor, and processes wait for each other: three parts of the
# checks run side by side.
processes() {
	check ./host/train XLAProcesses
	check ./host/train/step Shards
}
training() {
	check ./host/train 'XLA$|XLA[^P]'
}
programs() {
	check ./host/compute/engine .
	# XLA makes numbers below 2^-126 zero on processors: the tests that have such are left out.
	check ./host/compute/lower 'ShardsOf|Rounding|Select|LargeRotations|Quantize|RandomPrograms|RandomBits|Products|Shape|Dot$|Hadamard|ProductOf|OwnBackward'
	check ./host/model 'GradientsMatchPyTorch|TestLoss$|BFloat16|SharedKeys|Decode/qwen3|DocumentsAreKeptApart/qwen3'
	check ./host/model/graphs 'Rules/llama|Rules/gemma2|DivergenceAgrees'
	check ./host/train/step 'Replicas|Sampled|Columns|Single|BFloat16|Evaluat|Scores|SkippedStep$|Quantized$|RefreshDelay|IntegerProducts|OwnBackward'
	check ./host/testing/pjrtrecord Processes
}

# show ends what still runs, and shows what was found, also where this script is ended before.
show() {
	kill -- "${parts[@]/#/-}" 2>/dev/null || true
	awk -f scripts/tests.awk "$work/processes" "$work/training" "$work/programs"
}
trap show EXIT
trap 'trap "" TERM; exit 143' TERM # timeout and make send it once more, to each process
parts=()
set -m # each part gets a process group, so that it can be ended with all that it has started
for part in processes training programs; do
	$part >"$work/$part" 2>&1 &
	parts+=($!)
done
set +m
rc=0
for part in "${parts[@]}"; do
	wait "$part" || rc=$?
done
trap - EXIT TERM
show
[ $rc = 0 ]

# kit PLUGIN runs the conformance kit on a plugin in examples, and shows its last line, or all of it after a failure.
kit() {
	"$work/cage" plugins test "examples/plugins/$1" --device cuda >"$work/kit" || {
		cat "$work/kit"
		exit 1
	}
	echo "$1: $(tail -n 1 "$work/kit")"
}

go build -tags "$tags" -o "$work/cage" ./cmd/cage
kit nf4 # with numbers of all sizes; it looks up
kit kivi
kit stochastic
kit adam8bit
kit sam
