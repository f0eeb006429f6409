# Read by xla.sh and predict.sh: what both need to give cage's device "cuda" the PJRT plugin
# host/testing/pjrtrecord, in the place of a GPU's. To be read in the root of the repository by
# bash, with these variables:
#
#   name         of the script, for messages
#   work         a directory for what is installed and built
#   unavailable  the exit status where something is missing
export GOTOOLCHAIN=go1.27.2 GOEXPERIMENT=simd CGO_ENABLED=1 GOFLAGS=-trimpath

# missing says why there is nothing to do, and ends the script.
missing() {
	echo "$name: SKIPPED: $1"
	exit "$unavailable"
}

compiler=$(go env CC)
command -v "${compiler%% *}" >/dev/null || missing "there is no C compiler ($compiler)"

# install PYTHON DIRECTORY PACKAGE... makes a virtual environment by scripts/venv.sh.
install() {
	local said
	said=$(PYTHON=$1 scripts/venv.sh "${@:2}" 2>&1) || missing "$said"
}

# record compiles the PJRT plugin, and has cage take it.
record() {
	export PJRT_PLUGIN_LIBRARY_PATH=$work/pjrt_c_api_cuda_plugin.so
	go mod download github.com/gomlx/go-xla # has the header of PJRT
	# shellcheck disable=SC2086 # the compiler may be a command with flags
	$compiler -shared -fPIC -pthread -I "$(go list -m -f '{{.Dir}}' github.com/gomlx/go-xla)/pjrt" \
		-o "$PJRT_PLUGIN_LIBRARY_PATH" host/testing/pjrtrecord/testdata/*.c
}
