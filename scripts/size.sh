#!/usr/bin/env bash
# Counts the lines of Go, without tests and generated code, by layer.
#
#   scripts/size.sh
set -euo pipefail
cd "$(dirname "$0")/.."

git ls-files -z '*.go' | grep -zv -e '_test\.go$' -e '\.pb\.go$' | xargs -0 wc -l | awk '
$2 == "total" { next } # xargs may call wc more than once
{
	split($2, part, "/")
	layer = part[1] == "host" ? "core, host/" part[2] : "core, " part[1]
	if (part[1] == "tools" || part[1] == "examples") layer = part[1]
	if ($2 ~ /^(internal|host)\/testing\//) layer = "test support"
	kind = layer; sub(",.*", "", kind)
	lines[layer] += $1; sum[kind] += $1; all += $1
}
END {
	for (layer in lines) if (layer ~ /^core/) printf "%7d  %s\n", lines[layer], layer | "sort -k2"
	close("sort -k2")
	for (kind in sum) printf "%7d  %s\n", sum[kind], kind | "sort -k2"
	close("sort -k2")
	printf "%7d  all Go without tests and generated code\n", all
}'
