#!/usr/bin/env bash
# Builds a plugin in Go for several systems, OUT/SYSTEM/NAME, and writes their SHA-256 into
# OUT/SHA256SUMS. The same source, Go and SDK give the same files, wherever they are built.
#
#   scripts/publish-plugin.sh DIR OUT [OS/ARCH...]
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mkdir -p "$2"
name=$(basename "$(cd "$1" && pwd)") out=$(cd "$2" && pwd)
cd "$1"
shift 2
[ $# -gt 0 ] || set -- linux/amd64 linux/arm64 darwin/amd64 darwin/arm64
for system in "$@"; do
	env -u GOEXPERIMENT -u GOAMD64 -u GOARM64 GOFLAGS= CGO_ENABLED=0 \
		GOOS="${system%/*}" GOARCH="${system#*/}" \
		go build -trimpath -buildvcs=false -o "$out/${system/\//_}/$name" .
done
cd "$out"
if command -v sha256sum >/dev/null; then sha256sum ./*/"$name"; else shasum -a 256 ./*/"$name"; fi |
	tee SHA256SUMS
