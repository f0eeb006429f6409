#!/usr/bin/env bash
# Builds bin/cage and all plugins in a copy of this repository, in a directory of another name, and
# fails unless they are the same, byte for byte, as those built here; make reproducible builds the
# plugins first. What is copied is what git tracks, as it is in the working tree, without its
# history, which a bin/cage built here would name.
set -euo pipefail
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

copy="$scratch/a directory/of another name"
mkdir -p "$copy"
git ls-files -z --cached --others --exclude-standard | tar --null --files-from=- --create --file=- | tar --extract --file=- --directory="$copy"
env -u MAKEFLAGS make --no-print-directory -C "$copy" build
(cd "$copy/bin" && sha256sum cage plugins/*) >"$scratch/hashes"

mkdir "$scratch/here"
ln -s "$PWD/bin/plugins" "$scratch/here/plugins"
"${GO:-go}" build -buildvcs=false -o "$scratch/here/cage" ./cmd/cage
cd "$scratch/here"
sha256sum --check "$scratch/hashes" || { echo "two builds of the same source differ" >&2 && exit 1; }
