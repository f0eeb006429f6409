#!/usr/bin/env bash
# Compiles the training step of each preset for an NVIDIA GPU that is not there, and prints
# what XLA makes of it: memory, what is updated in place, kernels, and for each kind of kernel
# a time from its bytes, its floating-point operations and the instructions of its machine
# code. A prediction, not a measurement.
#
#   scripts/predict.sh             the table, and the tests of these properties
#   scripts/predict.sh --table     the table alone
#   scripts/predict.sh --kernels   writes a table of docs/lab/gpu.md: the kernels of all shipped quantizers
#   scripts/predict.sh COMMAND...  any command: the device "cuda" of a cage built with the tag
#                                  cuda is that GPU; programs are compiled for it, but none is
#                                  executed, and all that is read from it is zero
#
# `cage bench step` gives the programs, on a PJRT plugin that records and computes nothing
# (host/testing/pjrtrecord); scripts/gpucompiler.py has JAX's plugin for CUDA compile them, and
# scripts/predict.py reads what comes out. JAX's plugin comes from PyPI with the compilers of
# CUDA's toolkit (1.3 GB for each version) and goes into virtual environments in $PREDICT_DIR
# (default: cage-predict in the user's cache). Without a C compiler or without these there is
# nothing to do. Settings, by environment variables:
#
#   VERSIONS of the plugin: the tests run with each (0.10.2 0.11.2 0.12.0.1). The table and
#            commands take the last one, which has the description of the GPU, too: versions
#            before 0.12 have none. 0.10.2 is the newest for Python 3.11
#   SIZES    presets, each with its batch (30M:64 100M:64 430M:64), or TOML files of runs
#   CONTEXT  tokens per sequence (512)
#   KERNELS  fused or graph: how the programs of quantizers are computed (fused)
#   STEP     more flags of cage bench step (none)
#   DEVICES  how many GPUs (1)
#   GPU      which is not there, by the name that XLA has for it: an H200 ("NVIDIA B200", "NVIDIA H100 80GB HBM3",
#            "NVIDIA A100-SXM4-80GB", "NVIDIA L40S")
#   PYTHON   a Python of 3.12 or later (python3)
set -euo pipefail
cd "$(dirname "$0")/.."
name=predict
work=${PREDICT_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/cage-predict}
unavailable=0
if [ $# -gt 0 ]; then
	unavailable=1 # an error for a command, none for the tests
fi
. scripts/pjrtrecord.sh

python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null || missing "$python is no Python of 3.12 or later: name one in PYTHON"
tests=yes
if [ "${1:-}" = --table ]; then
	tests=no
	shift
fi
mkdir -p "$work/programs"
read -ra versions <<<"${VERSIONS:-0.10.2 0.11.2 0.12.0.1}"
newest=${versions[-1]}
if [ $# -gt 0 ] || [ $tests = no ]; then
	versions=("$newest")
fi
for version in "${versions[@]}"; do
	install "$python" "$work/$version" "jaxlib==$version" "jax-cuda13-pjrt==$version" nvidia-cuda-nvcc==13.5.37 nvidia-nvvm==13.5.37 numpy==2.5.5
done
install "$python" "$work/disassembler" nvidia-cuda-nvdisasm==13.5.37
PATH=$(echo "$work"/disassembler/venv/lib/python3*/site-packages/nvidia/cu13/bin):$PATH
CAGE_PREDICT_TARGETS=$(echo "$work/$newest"/venv/lib/python3*/site-packages/jax_plugins/xla_cuda13/xla_cuda_plugin.so)
export CAGE_PREDICT_TARGETS
if [ "${1:-}" = --kernels ]; then
	CAGE_TEST_PREDICT=$work/$newest/venv/bin/python exec go test -tags cuda -count=1 -timeout 60m ./host/train/step -run PredictedPresets -update
fi
if [ $# -gt 0 ]; then
	record
	export CAGE_RECORD_DEVICES=1 CAGE_RECORD_COMPILE_ONLY=1
	export CAGE_RECORD_PYTHON=$work/$newest/venv/bin/python CAGE_RECORD_SCRIPT=$PWD/scripts/gpucompiler.py
	exec "$@"
fi

for version in "${versions[@]}"; do
	[ $tests = yes ] || break
	echo "JAX's plugin $version:"
	CAGE_TEST_PREDICT=$work/$version/venv/bin/python CAGE_TEST_PREDICT_GPU=${GPU:-} go test -tags cuda -count=1 -timeout 60m ./host/train/step -run Predicted
done
python=$work/$newest/venv/bin/python

record
go build -tags cuda -o "$work/cage" ./cmd/cage
go build -buildvcs=false -o "$work/plugins/" ./plugins/*
export CAGE_PLUGIN_PATH=$work/plugins CAGE_RECORD_DEVICES=${DEVICES:-1}

# program SIZE names the directory of its programs.
program() {
	echo "$work/programs/${1//\//-}"
}

# predict PRESET BATCH compiles the step of a preset, and predict FILE.toml that of a run.
predict() {
	local dir run=(--set "model.preset=\"$1\"" --set "train.batch=$2" --set "model.context=${CONTEXT:-512}")
	dir=$(program "$1")
	if [ -f "$1" ]; then
		run=("$1")
	fi
	rm -rf "$dir"
	mkdir -p "$dir"
	# shellcheck disable=SC2086 # STEP holds words
	CAGE_RECORD_DIR=$dir "$work/cage" bench step "${run[@]}" --alone --steps 1 --set 'device.kind="cuda"' --set 'device.precision="bfloat16"' --set 'device.attention="fused"' --set "device.kernels=\"${KERNELS:-fused}\"" --set "device.count=${DEVICES:-1}" \
		${STEP:-} >"$dir/bench.json"
	"$python" scripts/predict.py compile "$(grep -l '^module @step' "$dir"/*.mlir)" "$dir/dump" ${GPU:+"$GPU"} >"$dir/compiled.json"
	rm -rf "$dir/dump"
}

results=()
for size in ${SIZES:-30M:64 100M:64 430M:64}; do
	predict "${size%:*}" "${size#*:}"
	title=$size
	[ -f "$size" ] || title="${size%:*}, ${size#*:} × ${CONTEXT:-512}"
	results+=("$title=$(program "${size%:*}")/compiled.json:$(program "${size%:*}")/bench.json")
done
echo
echo "Predicted, not measured: $(git rev-parse --short HEAD), $(date -u +%F), JAX's plugin $newest."
echo
"$python" scripts/predict.py table "${results[@]}"
[[ ${results[*]} == *.toml=* ]] || # scripts/predicted.json is a copy of one
	"$python" scripts/gpu-report.py predictions "${results[@]}" >"$work/predicted.json"
