#!/usr/bin/env bash
# Tries the archive for this machine in a directory of archives: it is unpacked, and its
# cage trains a toy, in another directory, with nothing but the plugins beside it.
#
#   scripts/try-archive.sh DIR
set -euo pipefail

dir=$(cd "$1" && pwd)
case $(uname -s) in Darwin) os=macos ;; *) os=linux ;; esac
case $(uname -m) in x86_64) arch=amd64 ;; aarch64 | arm64) arch=arm64 ;; esac

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
sums=$(command -v sha256sum || echo "shasum -a 256")
# Of a release, checksums.txt names files outside of the directory, too.
(cd "$dir" && grep -E '\.(tar\.gz|json)$' checksums.txt | $sums --check --quiet -)
tar -xzf "$dir"/cage_*_"${os}_$arch.tar.gz" -C "$scratch"
root=$(echo "$scratch"/cage_*)
for file in LICENSE THIRD_PARTY_LICENSES CHANGELOG.md README.md docs/guide/plugin.md docs/design/README.md examples/paper/effect.toml; do
	[ -s "$root/$file" ] || { echo "the archive holds no $file" >&2; exit 1; }
done

mkdir "$scratch/elsewhere"
cd "$scratch/elsewhere"
unset CAGE_PLUGIN_PATH
"$root/cage" version
"$root/cage" plugins list
"$root/cage" train "$root/examples/toy.toml" --quiet --set 'train.out="run"'
"$root/cage" eval run
if "$root/cage" version | grep '^missing:'; then
	exit 1
fi
echo "the archive works"
