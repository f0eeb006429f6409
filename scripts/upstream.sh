#!/bin/sh
# Applies the patch of docs/upstream to the version of github.com/gomlx/compute that go.mod requires, in a scratch directory, and
# runs the tests of the library's Go backend.
set -eu
cd "$(dirname "$0")/.."
GO=${GO:-go}
patch=$PWD/docs/upstream/gomlx-compute-named-natives.patch
from=$($GO list -m -f '{{.Dir}}' github.com/gomlx/compute)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cp -r "$from/." "$scratch"
chmod -R u+w "$scratch"
cd "$scratch"
GIT_CEILING_DIRECTORIES=$(dirname "$scratch") git apply "$patch"
$GO vet ./gobackend
$GO test ./gobackend ./internal/gobackend/...
