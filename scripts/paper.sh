#!/usr/bin/env bash
# A part of each small variant of the paper's experiments, mostly of one seed, one after
# another: trains what is missing, writes the reports, and says where they are. All of
# them: scripts/results.sh. It can be interrupted and started again at any time. `make paper-small` builds everything first.
#
#   scripts/paper.sh                all
#   scripts/paper.sh toy lotion …   only these
set -euo pipefail
cd "$(dirname "$0")/.."
cage=bin/cage

say() { printf '\n== %s\n' "$*"; }

if [ ! -x "$cage" ]; then
	echo "$cage is not built: run 'make build', or 'make paper-small'" >&2
	exit 1
fi

studies=(toy quadratic effect main-small ablation-small optimizers-small lotion-small schedule-small scaling-small tasks-small)
if [ $# -gt 0 ]; then
	studies=()
	for name in "$@"; do
		[ -f "examples/paper/$name.toml" ] || name=$name-small
		[ -f "examples/paper/$name.toml" ] || { echo "there is no examples/paper/$name.toml" >&2; exit 2; }
		studies+=("$name")
	done
fi

if [[ " ${studies[*]} " == *" tasks-small "* ]]; then
	scripts/paper-data.sh tasks
else
	scripts/paper-data.sh
fi

files=()
for name in "${studies[@]}"; do
	say "Study $name"
	part=() # `make results` runs all
	case $name in
	effect) part=(--only size=131k --only rotation=HT --only bits=4,2 --only method=QuEST,CAGE --only seed=0,1,2,3,4) ;; # 20 of 700 cells
	main-small | ablation-small | schedule-small | scaling-small) part=(--only seed=0) ;;
	optimizers-small) part=(--only seed=0,1) ;;
	lotion-small) part=(--only seed=0,1,2) ;;
	esac
	"$cage" study run "examples/paper/$name.toml" ${part[@]+"${part[@]}"}
	files+=("examples/paper/$name.toml")
	if [ "$name" = scaling-small ]; then
		"$cage" fit studies/scaling-small --out studies/scaling-small/fit
	fi
done

if [ $# -eq 0 ]; then
	say "What CAGE adds to a step"
	for rotation in none auto; do
		echo "quantizer.rotation = $rotation"
		"$cage" bench step --steps 20 --set "quantizer.rotation=\"$rotation\""
		for form in off decoupled; do # the memory of a process that runs one kind of step
			echo "method.form = $form, alone:"
			"$cage" bench step --alone --steps 4 --set "quantizer.rotation=\"$rotation\"" --set "method.form=\"$form\""
		done
	done | tee studies/overhead.txt
fi

say "Reports"
"$cage" study report "${files[@]}"
