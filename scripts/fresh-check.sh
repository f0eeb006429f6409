#!/usr/bin/env bash
# Tries the README's two commands as on a new machine: in a clone, with an empty home
# directory and empty caches, no standard input, and GOTOOLCHAIN=local, under which
# the go command uses no other toolchain by itself.
#
#   scripts/fresh-check.sh [GO [TARGET...]]
#
# GO is the go command to start from, of Go 1.21 or newer (default: go); the targets are
# demo and test unless others are named. What is checked is the last commit.
set -euo pipefail
cd "$(dirname "$0")/.."

go=$(command -v "${1:-go}")
shift $(($# > 0))
[ $# -gt 0 ] || set -- demo test

scratch=$(mktemp -d)
cleanup() {
	chmod -R u+w "$scratch" # the go command makes its module cache read-only
	rm -rf "$scratch"
}
trap cleanup EXIT

git clone --quiet . "$scratch/cage"
mkdir "$scratch/home" "$scratch/bin"
ln -s "$go" "$scratch/bin/go"

# Of the environment only what leads to the network is kept.
fresh=(env -i "HOME=$scratch/home" "PATH=$scratch/bin:$PATH" GOTOOLCHAIN=local)
for name in GOPROXY GONOSUMDB GOSUMDB HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy SSL_CERT_FILE SSL_CERT_DIR; do
	if [ -n "${!name-}" ]; then
		fresh+=("$name=${!name}")
	fi
done

cd "$scratch/cage"
"${fresh[@]}" go version
for target; do
	begin=$SECONDS
	"${fresh[@]}" make "$target" </dev/null
	echo "fresh-check: make $target took $((SECONDS - begin)) seconds"
done
# A README command that builds a plugin from its source, by the go command that is there.
if [ -x bin/cage ]; then
	"${fresh[@]}" bin/cage plugins show ./examples/plugins/blockfloat </dev/null
fi
echo "fresh-check: all of it works from $("${fresh[@]}" go version)"
