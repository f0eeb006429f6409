#!/usr/bin/env bash
# Shows the bugs of docs/lab/reliability.md ("by hand") that the crash campaign does not find by itself:
#
#	scripts/track-record.sh CAGE [BUG...]
#
# CAGE is a built command with its plugins beside it, of this or an older commit; without
# names all are tried. Each prints whether it is there; the exit code is 1 when one is.
set -uo pipefail
cage=$(realpath "${1:?usage: scripts/track-record.sh CAGE [BUG...]}")
examples=$(realpath "$(dirname "$0")/../examples")
plugins=$(dirname "$cage")/plugins
shift

long() { # a training that lasts, in the place of this shell: long ARGUMENT... &
	exec "$cage" train "$examples/quadratic.toml" --set train.steps=10000000 "$@"
}
short() { # one that does not
	"$cage" train "$examples/quadratic.toml" --quiet "$@" >out 2>&1
}
checkpoints() { ls runs/quadratic/checkpoints 2>/dev/null | grep -c '\.safetensors$'; }

# Each function succeeds when the bug is there.

broken_pipe() { # the reader of the progress ends, and then the run is to stop
	long --set train.log_every=1 > >(head -1 >/dev/null) 2>&1 &
	sleep 3
	kill -TERM $! 2>/dev/null
	wait $!
	[ "$(checkpoints)" = 0 ]
}
hang_up() { # the terminal is closed
	long --quiet >out 2>&1 &
	sleep 3
	kill -HUP $!
	wait $!
	[ "$(checkpoints)" = 0 ]
}
foreign_checkpoint() { # a run directory is removed while it is trained in, and made anew
	short --set train.steps=30000 &
	sleep 2
	rm -r runs/quadratic
	short --set train.steps=30000 --set seed=1 --stop-after 5
	wait
	short --set train.steps=30000 --set seed=1 --resume
	grep -o 'loss [0-9.]*' out >resumed
	rm -rf runs
	short --set train.steps=30000 --set seed=1
	grep -o 'loss [0-9.]*' out >whole
	! cmp -s resumed whole
}
pruned_intact() { # damaged checkpoints push the intact ones out
	short --stop-after 5
	for step in 998 999; do printf x >runs/quadratic/checkpoints/step-00000$step.safetensors; done
	short --resume --stop-after 9
	[ ! -e runs/quadratic/checkpoints/step-00000009.safetensors ]
}
silent_fallback() { # eval takes an older checkpoint than the newest
	short --set train.checkpoint_every=1000
	printf x >runs/quadratic/checkpoints/step-00002000.safetensors
	"$cage" eval runs/quadratic >out 2>&1
}
flipped_bit() { # a token file is not what its header says
	mkdir text
	for i in 1 2 3 4; do seq "$i" 400 >text/"$i"; done
	"$cage" data prepare text --out data --validation 0.3 >out 2>&1
	printf x | dd of=data/train.tokens bs=1 seek=6000 conv=notrunc 2>/dev/null
	cat >run.toml <<-'END'
		model = {layers = 1, width = 16, heads = 2, context = 8, hidden = 16}
		data = {train = "data/train.tokens", validation = "data/val.tokens"}
		train = {steps = 20, batch = 2}
		schedule = {rate = 1e-3}
	END
	"$cage" train run.toml --quiet >out 2>&1
}
full_outputs() { # nobody can read what the command says, and it succeeds
	"$cage" train "$examples/toy.toml" >/dev/full 2>/dev/full
}
matrix_of_one() { # Muon on a problem with an axis of 1
	"$cage" train "$examples/toy.toml" --quiet --set train.steps=4 --set 'optimizer={plugin="muon"}' >out 2>&1
	grep -q goroutine out
}
mixed_study() { # a plugin is edited between two cells of a study
	cat >study.toml <<-'END'
		[base]
		model = {kind = "toy"}
		train = {steps = 5}
		schedule = {kind = "constant", rate = 0.1}
		quantizer.weights = {plugin = "./rule"}
		optimizer = {plugin = "sgd"}
		[study]
		[[study.axes]]
		name = "start"
		key = "model.start"
		values = [[0.2], [0.9]]
	END
	cp "$plugins/grid" rule
	"$cage" study run study.toml --only 'start=[0.2]' >out 2>&1
	rm rule
	cp "$plugins/absmax" rule
	"$cage" study status study.toml >out 2>&1
	grep -q ': 1 of 2 cells done' out
}
unfinished() { # a run that is trained at this moment is not told from one that was stopped
	long --quiet >out 2>&1 &
	sleep 3
	"$cage" runs list runs >list 2>&1
	kill -TERM $!
	wait $!
	! grep -q running list
}

bugs="broken_pipe hang_up foreign_checkpoint pruned_intact silent_fallback flipped_bit full_outputs matrix_of_one mixed_study unfinished"
there=0
for bug in ${*:-$bugs}; do
	scratch=$(mktemp -d)
	if (cd "$scratch" && "$bug"); then
		echo "$bug: is there"
		there=1
	else
		echo "$bug: is not there"
	fi
	rm -rf "$scratch"
done
exit $there
