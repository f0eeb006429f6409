#!/usr/bin/env bash
# Trains a study of a hundred small cells on a Slurm of its own, kills what it trains, and
# compares the report with that of one process, byte for byte.
#
#   scripts/slurm-check.sh
#
# The cluster is this machine: slurmctld, munged, and slurmd twice, as two nodes with two
# GPUs each, which are names of /dev/null. It runs as the user who calls, in a
# directory that is removed, on ports of 127.0.0.1, beside a Slurm that is installed. While
# cells are trained, at random moments, tasks are requeued and cancelled, processes of tasks
# and trainings are killed, and once a whole node. What failed is submitted again, with
# --retry. Then all four GPUs must have been in use at once, each by a task of its own.
#
# Needs Linux and Slurm (Debian: apt-get install slurmctld slurmd slurm-client munge); says
# so where they are missing. Tried with Slurm 22.05. It takes some ten minutes on 2 cores.
#
# Settings, from the environment:
#   SLURM_CHECK_SEED     of the random numbers (the time)
#   SLURM_CHECK_MINUTES  after how many the check fails (40)
#   SLURM_CHECK_KEEP     leaves the directory as it is, if set
set -euo pipefail
cd "$(dirname "$0")/.."

missing() {
	echo "slurm-check: SKIPPED: $1"
	exit 0
}

say() { echo "slurm-check: $*"; }

fail() {
	say "FAILED: $*" >&2
	exit 1
}

PATH=$PATH:/usr/sbin:/sbin
[ "$(uname)" = Linux ] || missing "processes are found by /proc, as Linux has it"
for program in munged munge slurmctld slurmd sbatch squeue scontrol scancel; do
	command -v "$program" >/dev/null || missing "there is no $program (Debian: apt-get install slurmctld slurmd slurm-client munge)"
done
[ -x bin/cage ] || fail "there is no bin/cage: make build"

seed=${SLURM_CHECK_SEED:-$(date +%s)}
RANDOM=$((seed % 32768))
deadline=$((SECONDS + 60 * ${SLURM_CHECK_MINUTES:-40}))
work=$(mktemp -d "${TMPDIR:-/tmp}/cage-slurm.XXXXXX")
chmod 755 "$work" # munge wants that
mkdir "$work/run" "$work/state" "$work/log" "$work/spool" "$work/program"
cp -R bin/cage bin/plugins "$work/program" # so that a build meanwhile changes nothing
cage=$work/program/cage
export CAGE_SLURM_CHECK=$work # marks every process that comes of this script
export SLURM_CONF=$work/slurm.conf
export CAGE_PLUGIN_TIMEOUT=5m # this machine has more to do than the nodes of a cluster
say "$(slurmctld -V), seed $seed, $work"

# marked PATTERN lists the processes that come of this script and whose command line matches.
marked() {
	local file pid
	for file in $(grep -lzx "CAGE_SLURM_CHECK=$work" /proc/[0-9]*/environ 2>/dev/null || true); do
		pid=${file#/proc/}
		pid=${pid%/environ}
		if { tr '\0' ' ' <"/proc/$pid/cmdline" | grep -qE -- "$1"; } 2>/dev/null; then
			echo "$pid"
		fi
	done
}

# end PATTERN kills these processes, and waits until they are gone.
end() {
	local pids
	for _ in $(seq 50); do
		pids=$(marked "$1")
		[ -n "$pids" ] || return 0
		# shellcheck disable=SC2086 # a list
		kill -KILL $pids 2>/dev/null || true
		sleep 0.1
	done
	say "left behind: $pids" >&2
}

# parent PID is the process that has started another one. That of a task's script is its
# slurmstepd, which overwrites the place where its environment was.
parent() { sed -n 's/^PPid:[[:space:]]*//p' "/proc/$1/status" 2>/dev/null || true; }

cleanup() {
	trap - EXIT
	local pid
	for pid in $(marked slurm_script); do
		kill -KILL "$(parent "$pid")" 2>/dev/null || true
	done
	end .
	if [ -n "${SLURM_CHECK_KEEP:-}" ]; then
		say "left as it is: $work"
	else
		rm -rf "$work"
	fi
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# free is a port that nobody listens on.
free() {
	local port
	while :; do
		port=$((20000 + RANDOM % 10000))
		if ! (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
			echo "$port"
			return
		fi
	done
}

# start brings up the cluster. All of it listens on 127.0.0.1 alone. A task that was queued
# again waits until its credential has expired, which 5 seconds are the least for.
start() {
	chmod 700 "$work/state"
	ln -s /dev/null "$work/gpu0" # Slurm wants a device
	ln -s /dev/null "$work/gpu1"
	(umask 077 && head -c 1024 /dev/urandom >"$work/state/key")
	local user controller first second
	user=$(id -un)
	controller=$(free) first=$(free) second=$(free)
	cat >"$SLURM_CONF" <<END
ClusterName=check
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=$controller
SlurmUser=$user
SlurmdUser=$user
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthType=auth/munge
AuthInfo=socket=$work/run/munge,cred_expire=5
CredType=cred/munge
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool/%n
SlurmctldPidFile=$work/run/slurmctld.pid
SlurmdPidFile=$work/run/%n.pid
SlurmctldLogFile=$work/log/slurmctld
SlurmdLogFile=$work/log/%n
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2
SlurmdTimeout=10
ReturnToService=2
KillWait=10
GresTypes=gpu
NodeName=node[0-1] NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=$first,$second CPUs=2 Gres=gpu:2
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
	echo "NodeName=node[0-1] Name=gpu File=$work/gpu[0-1]" >"$work/gres.conf"
	munged --key-file="$work/state/key" --socket="$work/run/munge" --pid-file="$work/run/munge.pid" \
		--seed-file="$work/state/seed" --log-file="$work/log/munge" || fail "munged: $(tail -n 1 "$work/log/munge")"
	slurmctld >"$work/log/start" 2>&1 || fail "slurmctld: $(tail -n 1 "$work/log/start")"
	node node0
	node node1
	for _ in $(seq 60); do
		[ "$(sinfo --noheader --format=%T,%D 2>/dev/null)" != idle,2 ] || return 0
		sleep 1
	done
	tail -n 5 "$work"/log/* >&2
	fail "the cluster did not come up"
}

# node NAME starts a node.
node() { slurmd -N "$1" >>"$work/log/start" 2>&1 || fail "slurmd: $(tail -n 1 "$work/log/start")"; }

# of PID NAME is the value of a variable of a process.
of() { { tr '\0' '\n' <"/proc/$1/environ" | sed -n "s/^$2=//p"; } 2>/dev/null || true; }

# look counts the GPUs that tasks use now.
most=0
look() {
	local pid gpu now=0
	for pid in $(marked '^[^ ]*/cage study cell '); do
		gpu=$(of "$pid" SLURMD_NODENAME)/$(of "$pid" CUDA_VISIBLE_DEVICES)
		case $gpu in
		node[01]/[01])
			now=$((now + 1))
			echo "$gpu" >>"$work/used"
			;;
		esac
	done
	most=$((now > most ? now : most))
}

# one WORDS... is one of some words.
one() {
	local n=$((RANDOM % $#))
	shift "$n"
	echo "$1"
}

requeued=0 cancelled=0 tasks=0 trainings=0

# disturb does harm to one cell.
disturb() {
	local list
	case $((RANDOM % 8)) in
	0 | 1 | 2 | 3)
		list=$(squeue --noheader --array --states=RUNNING --format=%F_%K)
		# shellcheck disable=SC2086 # a list
		if [ -n "$list" ] && scontrol requeue "$(one $list)" 2>/dev/null; then
			requeued=$((requeued + 1))
		fi
		;;
	4)
		list=$(squeue --noheader --array --states=RUNNING --format=%F_%K)
		# shellcheck disable=SC2086
		if [ -n "$list" ] && scancel "$(one $list)" 2>/dev/null; then
			cancelled=$((cancelled + 1))
		fi
		;;
	5 | 6)
		list=$(marked '^[^ ]*/cage study cell ')
		# shellcheck disable=SC2086
		if [ -n "$list" ] && kill -KILL "$(one $list)" 2>/dev/null; then
			tasks=$((tasks + 1))
		fi
		;;
	7)
		list=$(marked '^[^ ]*/cage train ')
		# shellcheck disable=SC2086
		if [ -n "$list" ] && kill -KILL "$(one $list)" 2>/dev/null; then
			trainings=$((trainings + 1))
		fi
		;;
	esac
}

# lose takes the power of a node, and gives it back.
lose() {
	local pid mine=
	for pid in $(marked slurm_script); do
		[ "$(of "$pid" SLURMD_NODENAME)" != node1 ] || mine="$mine $(parent "$pid")"
	done
	for pid in $(marked /cage); do
		[ "$(of "$pid" SLURMD_NODENAME)" != node1 ] || mine="$mine $pid"
	done
	# shellcheck disable=SC2046,SC2086 # lists
	kill -KILL $(marked 'slurmd -N node1') $mine 2>/dev/null || true
	say "node1 has lost its power"
	sleep 15
	node node1
}

cat >"$work/many.toml" <<'END'
[base]
model = {kind = "quadratic"}
train = {steps = 4000, checkpoint_every = 200, keep = 1}
schedule = {kind = "linear_warmup_cosine", rate = 1e-2, warmup = 0.0, floor = 0.0}
quantizer = {weights = {plugin = "quest", bits = 4}}
optimizer = {plugin = "adamw"}
method = {lambda = 2.0, silence = 0.8}
[study]
[[study.axes]]
name = "method"
values = [{label = "QuEST", set = {method.form = "off"}}, {label = "CAGE", set = {}}]
[[study.axes]]
name = "rate"
key = "schedule.rate"
values = [3e-3, 1e-2, 3e-2]
[[study.axes]]
name = "seed"
key = ["seed", "model.problem_seed"]
values = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33]
# The first eight seeds choose a rate, at which the others are trained: 48 cells and then 52.
[[study.tables]]
columns = ["method"]
over = ["seed"]
baseline = {method = "QuEST"}
best = {axis = "rate", on = {seed = [0, 1, 2, 3, 4, 5, 6, 7]}, spare = true}
[[study.figures]]
kind = "curves"
metric = "loss"
series = ["method", "rate"]
over = ["seed"]
END
for place in alone cluster; do # with one name, which the page of a report shows
	mkdir -p "$work/$place/here"
	cp "$work/many.toml" "$work/$place/here"
done

# within COMMAND... ends it when the time is over.
within() { timeout --kill-after 30 $((deadline > SECONDS ? deadline - SECONDS : 1)) "$@"; }

say "one process"
(cd "$work/alone/here" && within "$cage" study run many.toml && within "$cage" study report many.toml --out "$work/alone/report") >"$work/log/alone" 2>&1 ||
	fail "$(tail -n 3 "$work/log/alone")"
say "$(grep 'cells done' "$work/log/alone"), after $SECONDS seconds"

start
cd "$work/cluster/here"
lost='' shown='' calls=0 begun=$SECONDS
while :; do
	calls=$((calls + 1))
	[ "$calls" -le 20 ] || fail "after 20 calls cells are left"
	code=0
	"$cage" study submit many.toml --slurm --retry -- --gpus=1 >"$work/log/submit" 2>&1 || code=$?
	[ "$code" = 0 ] || fail "exit code $code: $(tail -n 3 "$work/log/submit")"
	say "$(tail -n 1 "$work/log/submit")"
	! grep -q 'no cell is left' "$work/log/submit" || break
	again=
	while [ -n "$(squeue --noheader)" ]; do
		[ "$SECONDS" -lt "$deadline" ] || fail "the time is over: $(squeue)"
		look
		if [ -z "$shown" ] && [ "$most" = 4 ]; then
			"$cage" study status many.toml >"$work/log/status" 2>&1
			if grep -q ' on node0 since .*, task ' "$work/log/status" && grep -q '^running: . on node0, . on node1$' "$work/log/status"; then
				shown=yes
			fi
		fi
		if [ -z "$again" ] && [ $((SECONDS - begun)) -gt 15 ]; then
			again=yes
			if "$cage" study submit many.toml --slurm >"$work/log/again" 2>&1 && [ -n "$(squeue --noheader)" ]; then
				fail "a second array was submitted"
			fi
		fi
		if [ -z "$lost" ] && [ $((SECONDS - begun)) -gt 30 ]; then
			lost=yes
			lose
		fi
		if [ $((requeued + cancelled + tasks + trainings)) -lt 60 ]; then
			disturb
		fi
		sleep "$((RANDOM % 2)).$((RANDOM % 10))"
	done
done

say "$calls calls: $requeued tasks requeued, $cancelled cancelled, $tasks killed, $trainings trainings killed, ${lost:-no} node lost"
[ -n "$lost" ] && [ "$requeued" -gt 5 ] && [ "$tasks" -gt 2 ] || fail "that was too little"
[ -n "$shown" ] || fail "cage study status does not show the nodes: $(tail -n 3 "$work/log/status")"
say "tasks on each GPU, as seen: $(sort "$work/used" | uniq -c | tr -s ' \n' ' '); at most $most at once"
[ "$(sort -u "$work/used" | wc -l)" = 4 ] && [ "$most" = 4 ] || fail "not all GPUs were used at once, or two tasks shared one"
within "$cage" study report many.toml --out "$work/cluster/report" >"$work/log/report" 2>&1 || fail "$(tail -n 3 "$work/log/report")"
diff -r "$work/alone/report" "$work/cluster/report" >"$work/log/diff" || fail "the reports differ: $(head -n 5 "$work/log/diff")"
say "the report is that of one process: $(find "$work/alone/report" -type f | wc -l) files; $SECONDS seconds"
