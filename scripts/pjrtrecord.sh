# Read by xla.sh and predict.sh: what both need to give cage's device "cuda" the PJRT plugin
# host/internal/pjrtrecord, in the place of a GPU's. To be read in the root of the repository by
# bash, with these variables:
#
#   name         of the script, for messages
#   work         a directory for what is installed and built
#   packages     of Python, each with its version
#   unavailable  the exit status where something is missing
export GOTOOLCHAIN=go1.27.2 GOEXPERIMENT=simd CGO_ENABLED=1 GOFLAGS=-trimpath

# missing says why there is nothing to do, and ends the script.
missing() {
	echo "$name: SKIPPED: $1"
	exit "$unavailable"
}

compiler=$(go env CC)
command -v "${compiler%% *}" >/dev/null || missing "there is no C compiler ($compiler)"

# install PYTHON makes the virtual environment $work/venv with the packages, unless it is there.
install() {
	mkdir -p "$work"
	if [ "$(cat "$work/packages" 2>/dev/null)" != "$packages" ]; then
		"$1" -m venv --clear "$work/venv" >"$work/log" 2>&1 || missing "$1 -m venv failed: $(tail -n 1 "$work/log")"
		# shellcheck disable=SC2086 # it is a list
		"$work/venv/bin/pip" install --quiet $packages >"$work/log" 2>&1 || missing "pip install $packages failed: $(tail -n 1 "$work/log")"
		echo "$packages" >"$work/packages"
	fi
}

# record compiles the PJRT plugin, and has cage take it.
record() {
	export PJRT_PLUGIN_LIBRARY_PATH=$work/pjrt_c_api_cuda_plugin.so
	# shellcheck disable=SC2086 # the compiler may be a command with flags
	$compiler -shared -fPIC -pthread -I "$(go list -m -f '{{.Dir}}' github.com/gomlx/go-xla)/pjrt" \
		-o "$PJRT_PLUGIN_LIBRARY_PATH" host/internal/pjrtrecord/testdata/*.c
}
