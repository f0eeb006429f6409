#!/usr/bin/env bash
# Builds bin/cage and all plugins twice, in directories of different names, and fails
# unless both builds are the same, byte for byte. What is built is what git tracks, as
# it is in the working tree, without its history.
set -euo pipefail
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# build DIR builds a copy of this repository in DIR and prints the hashes.
build() {
	mkdir -p "$1"
	git ls-files -z --cached --others --exclude-standard | tar --null --files-from=- --create --file=- | tar --extract --file=- --directory="$1"
	make --no-print-directory -C "$1" build >&2
	(cd "$1/bin" && find . -type f -exec sha256sum {} + | sort -k 2)
}

one=$(build "$scratch/one")
two=$(build "$scratch/a directory/of another name")
if [ "$one" != "$two" ]; then
	echo "two builds of the same source differ:" >&2
	diff <(echo "$one") <(echo "$two") >&2 || true
	exit 1
fi
echo "$one"
echo "two builds, same hashes"
