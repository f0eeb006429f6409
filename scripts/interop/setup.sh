# shellcheck shell=bash
# What scripts/events.sh and scripts/interop.sh have in common, which read this file: other
# people's programs, and cage. They set $work, a directory, and $packages, of PyPI; it sets
# $repo, and leaves them in $work, with $work/venv, $work/cage and the plugins.
repo=$PWD
# shellcheck disable=SC2086 # it is a list
scripts/venv.sh "$work" $packages
go build -o "$work/cage" ./cmd/cage
go build -o "$work/plugins/" ./plugins/*
export CAGE_PLUGIN_PATH=$work/plugins
rm -rf "$work/data" "$work/out"
cd "$work"
