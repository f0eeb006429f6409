#!/usr/bin/env bash
# Checks and measures the CUDA device in one call of at most ten minutes:
#
#   scripts/gpu-check.sh build   makes bin/gpu-check.tar.xz; needs Go, python3 and xz, and PyPI
#                                for Zig's C compiler, or a C compiler whose programs run there
#   scripts/gpu-check.sh         unpacks and uses it, on a machine with a GPU; needs python3
#                                and JAX's CUDA plugin, neither Go nor a network
#
# What fails first comes first: the device and its libraries, the trials of kernels, steps of
# the presets, a short training on GPU and CPU, and last the tests that hold
# on every device. The report is written anew after each stage: report.md and report.json,
# all output in log.txt. Settings, by environment variables:
#
#   OUT      where the report goes (gpu-report)
#   DEVICE   device to check (cuda); with cpu the script itself can be tried anywhere
#   PHASES   what to do after the device was opened (trials bench demo tests). pretrain, if the
#            archive was built with TEXT: three trainings of 30M side by side, in full precision and in
#            4 bits without and with the correction; about 0.1 s for each of PRETRAIN steps (2200).
#            study, if it was built with TEXT and STUDY: the cells of that study, PARALLEL (6) at once;
#            results that are done are in kept.json
#   TEXT     build: a dataset of 32,000 words, such as data/docs/tokens of scripts/paper-data.sh docs,
#            which is packed instead of the tests
#   STUDY    build: a study of that text, such as examples/studies/pretrain-6m.toml of data/paper
#   LIMIT    seconds for all of it (570)
#   SIZES    presets to time, or toy, each with its batch (30M:64 100M:64 430M:64, which has 32 on GPUs of less than 100 GB)
#   CONTEXT  tokens per sequence (512)
#   STEPS    steps to count (20)
#   STEP     more flags of cage bench step (none)
#   PACK     the archive, or a directory that has what it holds (bin/gpu-check.tar.xz)
#   PEER     command of another program to time beside it (none). It is given --layers,
#            --width, --heads, --context, --batch, --vocab and --steps, and prints last a
#            JSON object with the "seconds" of a step
#
# Exit codes: 0 all well, 1 something failed, 3 there is no CUDA plugin or no GPU.
set -euo pipefail
cd "$(dirname "$0")/.."
pack=${PACK:-bin/gpu-check.tar.xz}

# Seconds for each stage, at most. They sum to less than ten minutes.
declare -A limits=([device]=30 [trials]=45 [fused]=60 [graph]=45 [100M]=70 [430M]=100 [demo]=60 [tests]=100)

build() {
	# What is built runs on systems with an older C library, too, where Zig can be had.
	if [ -z "${CC-}" ]; then
		if scripts/old-libc.sh true; then
			exec scripts/old-libc.sh scripts/gpu-check.sh build
		fi
		echo "gpu-check.sh: what is built here runs only where the C library is as new as this machine's" >&2
		export CC=cc
	fi
	export GOTOOLCHAIN=go1.27.2 GOEXPERIMENT=simd
	local dir=bin/gpu-check flags=(-trimpath -ldflags '-s -w')
	rm -rf "$dir" "$pack"
	mkdir -p "$dir/plugins"
	CGO_ENABLED=0 go build "${flags[@]}" -buildvcs=false -o "$dir/plugins/" ./plugins/*
	CGO_ENABLED=1 go build "${flags[@]}" -tags cuda -o "$dir/cage" ./cmd/cage
	for package in ./host/compute/engine ./host/compute/lower ./host/model ./host/train/step; do
		mkdir -p "$dir/tests/${package##*/}"
		CGO_ENABLED=1 go test -c "${flags[@]}" -tags cuda -o "$dir/tests/${package##*/}/test" "$package"
		if [ -d "$package/testdata" ]; then
			cp -r "$package/testdata" "$dir/tests/${package##*/}/"
		fi
	done
	if [ -n "${TEXT-}" ]; then
		rm -rf "$dir/tests"
		cp -r "$TEXT" "$dir/text"
	fi
	if [ -n "${STUDY-}" ]; then
		cp "$STUDY" "$dir/study.toml"
	fi
	cp examples/demo.toml scripts/gpu-report.py scripts/predicted.json "$dir/"
	"$dir/cage" data prepare "$(go env GOROOT)/src/net" --include '*.go' --validation 0.02 --out "$dir/data"
	# The executables have much in common: a dictionary that spans them halves the archive.
	tar -C "$dir" -cf - . | xz -T1 --lzma2=preset=$([ -n "${TEXT-}" ] && echo 9e || echo 2),dict=256MiB >"$pack.new"
	mv "$pack.new" "$pack"
	rm -rf "$dir"
	ls -l "$pack"
}

# unpack extracts the archive, where tar cannot by Python, or takes what a directory holds.
unpack() {
	if [ -d "$pack" ]; then
		cp -r "$pack/." "$work/"
		return
	fi
	if command -v xz >/dev/null; then
		tar -C "$work" -xJf "$pack"
	else
		python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1], "r:xz").extractall(sys.argv[2], filter="data")' "$pack" "$work"
	fi
}

remaining() { echo $((${LIMIT:-570} - SECONDS)); }

# report writes what is known so far.
report() {
	(cd "$work" && for f in *.out *.err; do [ -s "$f" ] && printf '\n== %s\n' "$f" && tail -n 2000 "$f"; done) >"$out/log.txt" || true
	python3 "$work/gpu-report.py" report "$work" "$out" "$@"
}

# stage NAME LIMIT COMMAND... runs a command with a limit on its time, that of the name LIMIT or 70 seconds, and notes
# how it went. A stage for which no time is left is skipped.
stage() {
	local name=$1 limit=${limits[$2]-70} began=$SECONDS code=0
	shift 2
	limit=$(($(remaining) < limit ? $(remaining) : limit))
	if [ "$limit" -lt 10 ]; then
		printf '%s\tskipped\t0\n' "$name" >>"$work/stages"
		return
	fi
	timeout -k 5 "$limit" "$@" >"$work/$name.out" 2>"$work/$name.err" </dev/null || code=$?
	printf '%s\t%s\t%s\n' "$name" "$code" $((SECONDS - began)) >>"$work/stages"
	echo "$name: exit code $code after $((SECONDS - began)) s"
	report --quiet || true
	return 0
}

# Tests of exact bits and roundings, of the CPU device, and of memory and time.
never='Example|SameBits|DecayAndStep|ManySteps|TestMemory|OpenRefuses|ManyBranches|ThreadsReachBackend'

# package NAME PART RUN SKIP runs a part of a package's tests.
package() {
	export CAGE_TEST_DEVICE=$device CAGE_TEST_PLUGINS="$work/plugins"
	cd "$work/tests/$1"
	stage "test-$1$2" tests ./test -test.v -test.timeout 90s -test.run "$3" -test.skip "$never$4"
}

# tests runs the tests that hold on every device, and the conformance kit on each plugin.
# Those of package lower compile one program for each case, and so are divided. Where
# there are several GPUs, those of replicas run on two.
tests() {
	local name
	for name in engine model step; do
		(package "$name" '' '' '') &
	done
	(package lower -unary TestUnary '') &
	(package lower -binary TestBinary '') &
	(package lower -random TestRandomPrograms '') &
	(package lower -rest '' '|TestUnary|TestBinary|TestRandomPrograms') &
	if [ "$(wc -l <"$work/gpu")" -gt 1 ]; then
		for name in engine step; do
			(
				export CAGE_TEST_DEVICE_COUNT=2
				package "$name" -two-gpus Replica ''
			) &
		done
	fi
	for name in "$work"/plugins/*; do
		name=$(basename "$name")
		stage "conformance-$name" tests "$work/cage" plugins test "$name" --device "$device" &
	done
	wait
}

# train NAME KEY=VALUE... trains the shortened demo.
train() {
	local name=$1 sets=() set
	shift
	for set in train.steps=100 train.eval_every=0 train.log_every=1 train.checkpoint_every=0 train.checkpoint_minutes=0 train.final_eval_batches=40 \
		"data.train=\"$work/data/train.tokens\"" "data.validation=\"$work/data/val.tokens\"" "train.out=\"$work/runs/$name\"" "$@"; do
		sets+=(--set "$set")
	done
	stage "demo-$name" demo "$work/cage" train "$work/demo.toml" "${sets[@]}"
}

# pretrain trains the 30M preset three times at once, and keeps the metrics.
pretrain() {
	local name size=${SIZES:-30M}
	limits[pretrain]=400 # it is not one of the phases that are done without being named
	three() {
		name=$1
		shift
		# shellcheck disable=SC2046 # words
		stage "pretrain-$name" pretrain "$work/cage" train "$work/pretrain.toml" $(model "${size%%[: ]*}") --set "train.out=\"$work/runs/pretrain-$name\"" "$@"
		cp "$work/runs/pretrain-$name/metrics.jsonl" "$out/pretrain-$name.jsonl"
	}
	cat >"$work/pretrain.toml" <<-END
		model.context = ${CONTEXT:-512}
		data = {train = "$work/text/train.tokens", validation = "$work/text/val.tokens"}
		train = {steps = ${PRETRAIN:-2200}, batch = ${BATCH:-64}, eval_every = 400, eval_batches = 4, final_eval_batches = 8, checkpoint_every = 0, checkpoint_minutes = 0}
		schedule = {rate = 1.2e-3}
		quantizer = {plugin = "quest", bits = 4}
		optimizer = {plugin = "adamw"}
		device = {kind = "$device", precision = "bfloat16"}
	END
	three full --set 'quantizer={plugin="none"}' &
	three off --set 'method.name="off"' &
	three cage &
	wait
}

# study trains the cells of a study, and keeps the results of those that are done.
study() {
	limits[study]=540
	sed -i "s|\"data/[a-z-]*/|\"$work/text/|; s|^\[base.device\]|&\nkind = \"$device\"|; s|^out = .*|out = \"$work/study\"|" "$work/study.toml"
	if [ "$device" = cuda ]; then # several processes share its memory
		sed -i 's|^\[base.device\]|&\npreallocate = "off"|' "$work/study.toml"
	fi
	stage study study "$work/cage" study run "$work/study.toml" --parallel "${PARALLEL:-6}"
	"$work/cage" study keep "$work/study.toml" --out "$out/kept.json" || true
}

demo() {
	train cpu &
	if [ "$device" = cuda ]; then
		train cuda 'device.kind="cuda"' &
		train bfloat16 'device.kind="cuda"' 'device.precision="bfloat16"' 'device.kernels="graph"' &
		train kernels 'device.kind="cuda"' 'device.precision="bfloat16"' 'device.kernels="fused"' &
		train integers 'device.kind="cuda"' 'device.precision="bfloat16"' 'device.kernels="fused"' 'device.products="integer"' &
	fi
	wait
}

# model SIZE prints the flags of a preset, or of a model that takes no time.
model() {
	if [ "$1" = toy ]; then
		echo --set model.layers=1 --set model.width=128 --set model.heads=2
	else
		echo "--set model.preset=\"$1\""
	fi
}

# step NAME PRESET BATCH FLAG... times steps of a preset, on a GPU in bfloat16. A GPU that hangs is noticed before the limit.
step() {
	local name=$1 preset=$2 batch=$3 watch precision=float32
	shift 3
	if [ "$device" = cuda ]; then
		precision=bfloat16
		set -- "$@" --set device.timeout_minutes=0.4
	fi
	nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits -lms 500 >"$work/memory-$name" 2>/dev/null & # until killed
	watch=$!
	# shellcheck disable=SC2046,SC2086 # they hold words
	stage "bench-$name" "${name#"$preset-"}" "$work/cage" bench step --alone --set "device.kind=\"$device\"" --set "device.precision=\"$precision\"" $(model "$preset") \
		--set "train.batch=$batch" --set "model.context=${CONTEXT:-512}" --steps "${STEPS:-20}" "$@" ${STEP:-}
	kill "$watch" 2>/dev/null || true
	wait "$watch" 2>/dev/null || true
}

# works NAME FLAG... takes one step with a model of one layer, for which the device tries out kernels, attention and products, and
# says whether that ends well.
works() {
	local name=$1 precision=float32
	shift
	if [ "$device" = cuda ]; then
		precision=bfloat16
		set -- "$@" --set device.timeout_minutes=0.4
	fi
	stage "$name" trials "$work/cage" bench step --alone --steps 1 --set "device.kind=\"$device\"" --set "device.precision=\"$precision\"" $(model toy) --set model.context=128 --set train.batch=2 "$@"
	grep -q "^$name	0	" "$work/stages"
}

# trials finds out what the device can do. Where a trial ends the process, the rest goes on without what ended it.
trials() {
	local plain='--set device.attention="plain"' graph='--set device.kernels="graph"' without
	if ! works trials && [ "$device" = cuda ]; then
		for without in "$plain" "$graph" "$plain $graph"; do
			# shellcheck disable=SC2086 # words
			if works "trials-without-$(sed 's/--set device.//g; s/="[a-z]*"//g; s/ /-/g' <<<"$without")" $without; then
				STEP="$without ${STEP:-}"
				break
			fi
		done
	fi
	if [ "$device" = cuda ]; then
		# shellcheck disable=SC2086 # words
		works trials-products --set 'device.products="integer"' ${STEP:-} || true
	fi
}

# bench times steps, one process after the other, the first size with kernels and without.
bench() {
	local size preset batch sizes memory=0 first=1
	if [ -s "$work/gpu" ]; then
		memory=$(sed -n '1s/.*, *\([0-9]*\) MiB.*/\1/p' "$work/gpu")
	fi
	for size in ${SIZES:-30M:64 100M:64 430M:$((${memory:-0} > 100000 ? 64 : 32))}; do
		preset=${size%:*} batch=${size#*:}
		if [ "$first" = 1 ] && [ "$device" = cuda ]; then
			step "$preset-fused" "$preset" "$batch" --set 'device.kernels="fused"'
			step "$preset-graph" "$preset" "$batch" --set 'device.kernels="graph"'
		else
			step "$preset" "$preset" "$batch"
			if grep -q RESOURCE_EXHAUSTED "$work/bench-$preset.err" 2>/dev/null; then
				step "$preset-half" "$preset" $((batch / 2))
			fi
		fi
		first=0
		if [ -n "${PEER:-}" ]; then
			sizes=$(python3 "$work/gpu-report.py" sizes "$preset")
			stage "peer-$preset" peer sh -c "$PEER $sizes --context ${CONTEXT:-512} --batch $batch --steps ${STEPS:-20}"
		fi
	done
}

run() {
	out=${OUT:-gpu-report} device=${DEVICE:-cuda}
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	if [ ! -e "$pack" ]; then
		echo "$pack is missing: make it with \`scripts/gpu-check.sh build\` on a machine with Go" >&2
		return 1
	fi
	local phase
	for phase in ${PHASES:-trials bench demo tests}; do
		case $phase in
		trials | bench | demo | tests | pretrain | study) ;;
		*)
			echo "PHASES: unknown phase $phase: known are trials, bench, demo, tests, pretrain, study" >&2
			return 1
			;;
		esac
	done
	mkdir -p "$out" "$work/runs"
	unpack
	export CAGE_PLUGIN_PATH="$work/plugins"
	timeout 20 nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader >"$work/gpu" 2>/dev/null || true
	trap 'report || true; exit 1' INT TERM
	stage device device "$work/cage" version --device "$device" --json
	if ! grep -q '^device	0	' "$work/stages"; then
		cat "$work/device.err" >&2 2>/dev/null || true
		echo "there is no device \"$device\" to check" >&2
		report || true
		return 3
	fi
	for phase in ${PHASES:-trials bench demo tests}; do
		$phase
	done
	report
}

case ${1-} in
build) build ;;
'') run ;;
*)
	echo "usage: scripts/gpu-check.sh [build]" >&2
	exit 2
	;;
esac
