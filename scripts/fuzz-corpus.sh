#!/usr/bin/env bash
# Chooses from the inputs that fuzzing found, which stay in Go's cache, the few that go
# into the repository: those that reach code which neither the seeds nor smaller inputs
# reach, at most 30 for a target beside the failures that are kept there. `go test` tries
# them all, every time.
#
#   scripts/fuzz-corpus.sh                    all targets
#   scripts/fuzz-corpus.sh ./host/data FuzzX  some, named as for scripts/fuzz.sh
set -euo pipefail
cd "$(dirname "$0")/.."

most=30       # files of a target in the repository
considered=${CONSIDERED:-150} # of those in the cache, evenly from the smallest to the largest
largest=4096  # bytes of a file
cache=$(go env GOCACHE)/fuzz
work=$(mktemp -d)
placed=()
# Whatever happens, only what was chosen stays.
cleanup() {
	rm -rf "$work"
	[ ${#placed[@]} -eq 0 ] || rm -f "${placed[@]}"
}
trap cleanup EXIT

# candidates lists the cached inputs of a target that are small enough, by size.
candidates() {
	find "$1" -type f -size -"$largest"c -printf '%s %f\n' 2>/dev/null | sort -n | awk -v most="$considered" '
		{name[NR] = $2}
		END {step = NR > most ? NR / most : 1; for (i = 1; i <= NR; i += step) print name[int(i)]}'
}

# blocks lists the blocks of code that a run of the test binary reaches.
blocks() {
	(cd "$1" && "$work/test" -test.run "$2" -test.coverprofile "$work/cover" -test.timeout 60s >/dev/null 2>&1) || return 1
	awk 'NR > 1 && $NF > 0 {print $1}' "$work/cover"
}

choose() {
	local package=$1 target=$2 name file kept import
	import=$(go list -f '{{.ImportPath}}' "$package")
	local inputs="$cache/$import/$target" dir="$package/testdata/fuzz/$target"
	[ -d "$inputs" ] || return 0
	mkdir -p "$dir"
	kept=$(find "$dir" -type f | wc -l)
	# shellcheck disable=SC2016 # a regular expression
	blocks "$package" '^'"$target"'$' | sort -u >"$work/seen"
	for name in $(candidates "$inputs"); do
		[ "$kept" -lt "$most" ] || break
		file="$dir/$name"
		[ ! -e "$file" ] || continue
		placed+=("$file")
		cp "$inputs/$name" "$file"
		if blocks "$package" "^$target\$/^$name\$" | sort -u >"$work/reached" &&
			comm -13 "$work/seen" "$work/reached" | grep -q .; then
			sort -u -o "$work/seen" "$work/seen" "$work/reached"
			unset 'placed[-1]'
			kept=$((kept + 1))
		else
			rm -f "$file"
			unset 'placed[-1]'
		fi
	done
	rmdir --ignore-fail-on-non-empty -p "$dir" 2>/dev/null || true
	printf '%s %s: %s inputs\n' "$package" "$target" "$kept"
}

built=
while read -r package target; do
	if [ $# -gt 0 ]; then
		match=
		for wanted in "$@"; do
			case "$package $target" in *"${wanted%/...}"*) match=yes ;; esac
		done
		[ -n "$match" ] || continue
	fi
	if [ "$built" != "$package" ]; then
		go test -c -cover -o "$work/test" "$package"
		built=$package
	fi
	choose "$package" "$target"
done < <(scripts/fuzz.sh --list)
