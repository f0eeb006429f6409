package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// slurmScript is the name of the batch script, in the study's directory.
const slurmScript = "slurm.sh"

// submission is a job array as printed in JSON.
type submission struct {
	Cells   []int  `json:"cells"`   // indices
	Waiting int    `json:"waiting"` // cells that wait for what a table chooses
	Script  string `json:"script"`
	Answer  string `json:"answer,omitempty"` // of sbatch
}

func newStudySubmit() *cobra.Command {
	var slurm, kubernetes, dry bool
	var image, volume string
	var opts study.RunOptions
	cmd := &cobra.Command{
		Use:   "submit FILE {--slurm [-- OPTION...] | --kubernetes}",
		Short: "Submit the cells of a study to a cluster",
		Long: `Write a batch script for Slurm, with a task for each cell that is not done, and submit it
with sbatch. Each task is a 'cage study cell'. Options of sbatch follow two dashes:

  cage study submit bits.toml --slurm -- --partition=gpu --gpus=1 --time=4:00:00

Before its time is over, study.stop_minutes and two more, a task saves a checkpoint and
is queued again; so is a cell that waits for what a table chooses. Once an array has
ended, the same command submits what is left. The script and what tasks print are in the
study's directory.

With --kubernetes the manifest of an indexed Job is printed, for kubectl apply -f -. Its
image has cage and the plugins, and its volume is mounted where the working directory is
here. Pods that are stopped with a checkpoint are started again.

  cage study submit bits.toml --kubernetes --image IMAGE --volume CLAIM`,
		Args: func(cmd *cobra.Command, args []string) error {
			if n := cmd.ArgsLenAtDash(); n >= 0 {
				args = args[:n]
			}
			return exactly(1, "one study file")(cmd, args)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&slurm, "slurm", false, "to Slurm")
	flags.BoolVar(&kubernetes, "kubernetes", false, "print the manifest of a Job for Kubernetes")
	flags.StringVar(&image, "image", "", "of the containers of Kubernetes")
	flags.StringVar(&volume, "volume", "", "persistent volume `CLAIM` of Kubernetes with the working directory")
	flags.BoolVar(&dry, "dry-run", false, "print the script, and submit nothing")
	flags.BoolVar(&opts.Retry, "retry", false, "submit failed cells, too")
	return withAnswer(cmd, func(cmd *cobra.Command, args []string) (*answer, error) {
		switch {
		case slurm == kubernetes:
			return nil, usageError{errors.New("want --slurm or --kubernetes: where to")}
		case kubernetes && (image == "" || volume == ""):
			return nil, usageError{errors.New("--kubernetes wants --image and --volume")}
		}
		s, err := study.Load(args[0])
		if err != nil {
			return nil, err
		}
		if kubernetes {
			text, err := kubernetesText(s, image, volume, opts.Retry)
			return textAnswer(map[string]any{"manifest": text}, "%s", text), err
		}
		if opts.Survey, err = newSurvey(cmd); err != nil {
			return nil, err
		}
		plan, err := s.Plan(cmd.Context(), opts)
		if err != nil {
			return nil, err
		}
		job := submission{Cells: indices(s, plan.Run), Waiting: len(plan.Waiting)}
		if len(job.Cells) == 0 {
			return textAnswer(job, "%s: no cell is left to train\n", s.Out), nil
		}
		if job.Script, err = slurmText(s, job.Cells, opts.Retry, args[1:]); err != nil {
			return nil, err
		}
		if dry {
			return textAnswer(job, "%s", job.Script), nil
		}
		if job.Answer, err = sbatch(cmd, s, job.Script); err != nil {
			return nil, err
		}
		return &answer{job, func(w io.Writer) {
			fmt.Fprintf(w, "%s: %d tasks: %s\n", s.Out, len(job.Cells), job.Answer)
			if job.Waiting > 0 {
				fmt.Fprintf(w, "%d more cells wait for what a table chooses: submit them when these are done\n", job.Waiting)
			}
		}}, nil
	})
}

// indices are the places of cells in the study. Cells that share a run have the place of the first.
func indices(s *study.Study, cells []study.Cell) []int {
	list, wanted := []int{}, map[string]bool{} // written as [], not as null
	for _, c := range cells {
		wanted[c.ID] = true
	}
	for i, c := range s.Cells {
		if wanted[c.ID] {
			list, wanted[c.ID] = append(list, i), false
		}
	}
	return list
}

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

// slurmText is the batch script. Before the time is over the script alone receives SIGUSR1, and passes it on as SIGTERM; SIGTERM goes to
// all processes of a task by itself, when it is cancelled or preempted, and Slurm knows what it does then.
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
	line("#!/bin/sh")
	for _, option := range append([]string{
		"--job-name=" + s.Name, "--array=" + ranges(cells), "--output=" + filepath.Join(out, "slurm-%A_%a.log"),
		"--open-mode=append", "--requeue", fmt.Sprintf("--signal=B:USR1@%.0f", math.Ceil(60*s.StopMinutes)+120),
	}, options...) { // later ones win
		if strings.ContainsAny(option, "\n\r") {
			return "", usageError{fmt.Errorf("%q: want an option of sbatch in one line", option)}
		}
		if strings.ContainsAny(option, " \t\"'#") {
			option = `"` + strings.ReplaceAll(option, `"`, `\"`) + `"`
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

// sbatch submits a script that it leaves in the study's directory, and returns what sbatch says.
func sbatch(cmd *cobra.Command, s *study.Study, script string) (string, error) {
	program, err := exec.LookPath("sbatch")
	if err != nil {
		return "", fmt.Errorf("%w; submit from a machine with Slurm, or print the script with --dry-run", err)
	}
	file := vfs.At(s.Out).Join(slurmScript)
	if err := file.Dir().MkdirAll(); err != nil {
		return "", err
	}
	if err := atomicfile.WriteBytes(file, []byte(script)); err != nil {
		return "", err
	}
	out, err := exec.CommandContext(cmd.Context(), program, file.Name).CombinedOutput()
	said := strings.TrimSpace(string(out))
	if err != nil {
		return "", fmt.Errorf("sbatch %s: %w: %s", file, err, said)
	}
	return said, nil
}
