#!/usr/bin/env bash
# Makes the pictures of README.md and docs/lab/gallery.md again: from the runs of
# `make demo-compare` and from two studies that take minutes. What is trained is not trained again.
# Needs Chromium. `make pictures` builds everything first.
#
#   scripts/pictures.sh                    all
#   scripts/pictures.sh terminal gallery   only these
set -euo pipefail
cd "$(dirname "$0")/.."
cage=bin/cage
out=docs/pictures
recording=runs/terminal.txt
address=127.0.0.1:7391

say() { printf '\n== %s\n' "$*" >&2; }

# shot FILE URL FLAGS... takes a picture of a page.
shot() {
	file=$1 url=$2
	shift 2
	go run ./tools/screenshot --out "$out/$file" "$@" "$url"
}

drawn='document.querySelectorAll(".plot canvas").length > 0'

# session prints what the picture of a terminal shows.
session() {
	for command in "train examples/demo.toml" "eval runs/demo" \
		"generate runs/demo --prompt 'func ' --tokens 160 --temperature 0.5 --seed 2"; do
		printf '$ %s %s\n' "$cage" "$command"
		eval "$cage $command" 2>&1
		echo
	done
}

terminal() {
	if [ ! -f "$recording" ]; then
		scripts/demo.sh data >&2
		if [ -e runs/demo ]; then
			echo "to record a training, remove runs/demo" >&2
			exit 1
		fi
		mkdir -p runs
		session | tee "$recording.new" >&2
		mv "$recording.new" "$recording"
	fi
	go run github.com/charmbracelet/freeze@v0.2.2 --language text --window --font.family monospace \
		--output "$out/terminal.svg" <"$recording"
}

curves() {
	scripts/demo.sh compare >&2
	"$cage" plot runs/demo-fp runs/demo-quest runs/demo --out "$out/demo-compare.svg"
}

# study NAME FILE trains what is missing and writes the report.
study() {
	"$cage" study run "$1" >&2
	"$cage" study report "$1" >&2
}

quadratic() {
	study examples/paper/quadratic.toml
	shot study.png "file://$PWD/studies/quadratic/report/index.html" --width 860 --height 700
}

gallery() {
	study examples/studies/gallery.toml
	rm -f "$out"/figure-*.svg
	for figure in studies/gallery/report/figures/*.svg; do
		name=$(basename "$figure")
		cp "$figure" "$out/figure-${name#*-}"
	done
	rm "$out"/figure-final-loss-bits-[24].svg # one heat map is enough
	page=file://$PWD/studies/gallery/report/index.html
	shot study-dark.png "$page" --dark --width 860 --height 700 \
		--do '[...document.querySelectorAll("h2")].find((h) => h.textContent.startsWith("Distance")).scrollIntoView()'
}

live() {
	"$cage" train examples/demo.toml --resume --set 'train.out="runs/demo-samples"' --set train.steps=640 --set train.eval_every=160 \
		--set quantizer.bits=2 --set 'train.samples=["func ", "// "]' --set train.sample_tokens=160 --set train.sample_temperature=0.5 >&2
	"$cage" serve --listen "$address" runs >runs/serve.log 2>&1 &
	server=$!
	trap 'kill $server' EXIT
	until curl -s -o /dev/null "http://$address/"; do sleep 0.2; done
	shot serve.png "http://$address/" --width 1200 --height 900 --wait "$drawn"
	shot serve-dark.png "http://$address/run?run=runs/demo" --dark --width 1000 --height 900 --wait "$drawn"
	shot serve-phone.png "http://$address/run?run=runs/demo" --phone --width 390 --height 700 --wait "$drawn" \
		--do 'document.getElementById("charts").scrollIntoView()'
	shot serve-samples.png "http://$address/run?run=runs/demo-samples" --width 1000 --height 560 --wait "$drawn" \
		--do 'document.getElementById("samples").scrollIntoView()'
	kill $server
	trap - EXIT
}

if [ $# -eq 0 ]; then
	set -- terminal curves quadratic gallery live
fi
for part in "$@"; do
	case "$part" in
	terminal | curves | quadratic | gallery | live)
		say "$part"
		"$part"
		;;
	*)
		echo "usage: scripts/pictures.sh [terminal] [curves] [quadratic] [gallery] [live]" >&2
		exit 2
		;;
	esac
done
