package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// Files in the study's directory.
const (
	slurmScript = "slurm.sh"  // the batch script
	slurmArray  = "slurm.job" // the job array that was submitted last

	slurmHeading = "#!/bin/sh\n# Written by cage study submit, each time anew.\n" // begins the batch script
	maxArrayFile = 1 << 10                                                        // bytes of slurmArray, and more than it has
)

// ranges writes ascending numbers as Slurm reads them: 0-3,7.
func ranges(list []int) string {
	var parts []string
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		text := strconv.Itoa(list[i])
		if j > i {
			text += "-" + strconv.Itoa(list[j])
		}
		parts = append(parts, text)
		i = j + 1
	}
	return strings.Join(parts, ",")
}

// quoted is a word for the shell.
func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// slurmLog is the pattern of Slurm for the logs of tasks in a directory. With a backslash, which
// another one must precede, Slurm puts nothing in place of %A and the like, so all tasks share a
// log (man sbatch, "filename pattern").
func slurmLog(dir string) string {
	if strings.Contains(dir, `\`) {
		return strings.ReplaceAll(filepath.Join(dir, "slurm.log"), `\`, `\\`)
	}
	return filepath.Join(strings.ReplaceAll(dir, "%", "%%"), "slurm-%A_%a.log")
}

// slurmText is the batch script. Before the time is over the script alone receives SIGUSR1, and
// passes it on as SIGTERM; SIGTERM goes to all processes of a task by itself, when it is cancelled
// or preempted, and Slurm knows what it does then.
func slurmText(s *study.Study, cells []int, retry bool, options []string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	here, err := os.Getwd()
	if err != nil {
		return "", err
	}
	out, err := filepath.Abs(s.Out)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&text, format+"\n", args...) }
	text.WriteString(slurmHeading)
	for _, option := range append([]string{
		"--job-name=" + s.Name, "--array=" + ranges(cells), "--output=" + slurmLog(out),
		"--open-mode=append", "--requeue", fmt.Sprintf("--signal=B:USR1@%.0f", math.Ceil(60*s.StopMinutes)+120),
	}, options...) { // later ones win
		if strings.ContainsAny(option, "\n\r") {
			return "", usageError{fmt.Errorf("%q: want an option of sbatch in one line", option)}
		}
		if strings.ContainsAny(option, " \t\"'#\\") {
			option = `"` + strings.NewReplacer(`"`, `\"`, `\`, `\\`).Replace(option) + `"`
		}
		line("#SBATCH %s", option)
	}
	command := []string{quoted(self), "study", "cell", quoted(s.File), `--index "$SLURM_ARRAY_TASK_ID"`}
	if retry {
		command = append(command, "--retry")
	}
	line("cd %s || exit 1", quoted(here))
	line("%s &", strings.Join(command, " "))
	text.WriteString(`cell=$!
code=127 cancelled=
trap 'signalled=1; kill -TERM "$cell"' USR1
trap 'signalled=1 cancelled=1' TERM
while :; do # a signal interrupts wait
	signalled=
	wait "$cell"
	now=$?
	[ "$now" = 127 ] || code=$now
	[ -n "$signalled" ] || break
done
if [ "$code" = 130 ] && [ -z "$cancelled" ]; then
	scontrol requeue "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"
fi
exit "$code"
`)
	return text.String(), nil
}

// array is a job array of Slurm.
type array struct {
	job, cluster string // cluster is "" where there is only one
}

func (a array) String() string { return a.job }

// sbatch submits a script that it leaves in the study's directory.
func sbatch(ctx context.Context, s *study.Study, script string) (array, error) {
	program, err := exec.LookPath("sbatch")
	if err != nil {
		return array{}, fmt.Errorf("%w; submit from a machine with Slurm, or print the script with --dry-run", err)
	}
	file := vfs.At(s.Out).Join(slurmScript)
	job := vfs.At(s.Out).Join(slurmArray)
	err = errors.Join(atomicfile.CheckOurs(file, atomicfile.Begins(slurmHeading)), atomicfile.CheckOurs(job, func(content io.Reader) bool {
		text, err := io.ReadAll(io.LimitReader(content, maxArrayFile))
		return err == nil && arrayOf(strings.TrimSpace(string(text))).job != ""
	}))
	if err == nil {
		err = file.Dir().MkdirAll()
	}
	if err != nil {
		return array{}, err
	}
	if err := atomicfile.WriteBytes(file, []byte(script)); err != nil {
		return array{}, err
	}
	out, err := output(exec.CommandContext(ctx, program, "--parsable", file.Name))
	if err != nil {
		return array{}, fmt.Errorf("sbatch %s: %w", file, err)
	}
	a := arrayOf(out)
	if a.job == "" {
		return array{}, fmt.Errorf("sbatch %s: want the number of a job, not %q", file, out)
	}
	return a, atomicfile.WriteBytes(job, []byte(out+"\n"))
}

// output runs a command and returns what it says. What it says when it fails is in the error.
func output(cmd *exec.Cmd) (string, error) {
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		said := strings.TrimSpace(complaint.String() + string(out))
		return "", fmt.Errorf("%w: %s", err, said)
	}
	return strings.TrimSpace(string(out)), nil
}

// arrayOf reads what sbatch --parsable says: JOB, or JOB;CLUSTER.
func arrayOf(said string) array {
	job, cluster, _ := strings.Cut(said, ";")
	if _, err := strconv.ParseUint(job, 10, 64); err != nil {
		return array{}
	}
	return array{job, cluster}
}

// lastArray is the array that was submitted last, if there was one.
func lastArray(s *study.Study) array {
	text, err := vfs.At(s.Out).Join(slurmArray).ReadSmallFile(maxArrayFile)
	if err != nil { // none was, or nobody knows which
		return array{}
	}
	return arrayOf(strings.TrimSpace(string(text)))
}

// tasksLeft lists the tasks of an array that have not ended, as Slurm shows them. An array that
// Slurm no longer knows has none.
func tasksLeft(ctx context.Context, a array) (string, error) {
	arguments := []string{"--noheader", "--array", "--jobs=" + a.job, "--format=%K %T %r"}
	if a.cluster != "" {
		arguments = append(arguments, "--clusters="+a.cluster)
	}
	out, err := output(exec.CommandContext(ctx, "squeue", arguments...))
	if err != nil && strings.Contains(err.Error(), "Invalid job id") {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("squeue: %w", err)
	}
	lines := slices.DeleteFunc(strings.Split(out, "\n"), func(line string) bool {
		return line == "" || strings.HasPrefix(line, "CLUSTER:")
	})
	return strings.Join(lines, ", "), nil
}
