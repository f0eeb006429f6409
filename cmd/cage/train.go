package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/processes"
	"github.com/cage-qat/cage/host/train/provenance"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/vfs"
)

func newTrain() *cobra.Command {
	var opts train.Options
	var sets []string
	var quiet, estimate bool
	var parentPipe time.Duration
	var together string
	cmd := &cobra.Command{
		Use:   "train RUN.toml",
		Short: "Train a model as a TOML file says",
		Long: `Train a model as a TOML file says.

The run directory (train.out, by default runs/NAME for NAME.toml) receives the
resolved configuration, metrics, checkpoints and a summary. Training stops cleanly
on Ctrl-C, SIGTERM, SIGQUIT or SIGHUP: the step under way is finished and a checkpoint
saved; with --resume the run continues, bit for bit as if it had not stopped (on the CPU).
With a larger train.steps, or data.epochs of conversations, a run continues beyond its
end, finished or not, where the learning rate and λ of the steps that are done stay what
they were: with the schedule "constant" at any time, with "wsd" before its decay.

With --estimate nothing is trained: the memory that the run would need is printed, part
by part, and what there is.

With --processes, several processes train one model, each on some of the GPUs: start the
same command for each of them, on one machine or several. The numbers of the processes,
and where the first listens, come from Slurm (slurm: srun), torchrun, an indexed Job of
Kubernetes with WORLD_SIZE and MASTER_ADDR (kubernetes), or are given as
RANK/SIZE@HOST:PORT. device.count is the number of GPUs of all processes. The first
writes the run directory, which the others read: they must have the same one, on a file
system that their machines share. Without --processes, a process trains alone, whatever
is in its environment.

Every key can be overridden with --set, values as in TOML:

  cage train examples/demo.toml --set train.steps=50 --set 'quantizer.plugin="absmax"'

See 'cage config' for all keys and 'cage plugins show NAME' for a plugin's.`,
		Args: notNegative(exactly(1, "one TOML file"), "stop-after"),
	}
	flags := cmd.Flags()
	flags.BoolVar(&opts.Resume, "resume", false, "go on with the run in train.out, or begin it")
	flags.StringArrayVar(&sets, "set", nil, "override a key of the file: `KEY=VALUE` (repeatable)")
	flags.BoolVar(&quiet, "quiet", false, "show messages, but no progress")
	flags.BoolVar(&estimate, "estimate", false,
		"only print how much memory the run needs: an estimate, or what XLA says on a GPU")
	flags.StringVar(&together, "processes", "",
		"train together with other processes, whose numbers come from `SOURCE`: "+processes.Sources)
	parentPipeFlag(cmd, &parentPipe)
	flags.IntVar(&opts.StopAfter, "stop-after", 0,
		"stop after this many steps of the run, with a checkpoint; 0: do not")
	return withAnswer(cmd, func(cmd *cobra.Command, args []string) (*answer, error) {
		place := processes.Position{Size: 1}
		// An empty SOURCE is an error: an unset variable does not mean to train with one process.
		if cmd.Flags().Changed("processes") {
			var err error
			if place, err = processes.Find(together, os.Getenv); err != nil {
				return nil, usagef("--%w", err) // the error begins with the name of the flag
			}
		}
		cfg, err := loadRun(args[0], sets)
		if err != nil {
			return nil, err
		}
		opts.Logger = newLogger(cmd)
		if estimate {
			report, err := train.EstimateMemory(cmd.Context(), cfg, opts)
			if err != nil {
				return nil, err
			}
			return &answer{report, func(w io.Writer) { printMemory(w, cfg, report) }}, nil
		}
		watchParent(parentPipe)
		var group *processes.Group
		if place.Size > 1 { // only the first process shows progress and the summary
			if group, err = joinOthers(cmd, cfg, place); err != nil {
				return nil, err
			}
			opts.Processes, quiet = group, quiet || place.Rank > 0
		}
		if !quiet {
			display := train.NewConsole(unescaped(cmd.ErrOrStderr()), cfg)
			defer display.Close()
			opts.Console, opts.Logger = display, newLoggerOn(cmd, display)
		}
		summary, err := train.Run(cmd.Context(), cfg, opts)
		if group != nil {
			group.Leave(err) // no effect if training has begun: then it has left already
		}
		if summary == nil || place.Rank > 0 {
			return nil, err
		}
		return &answer{summary, func(w io.Writer) { printSummary(w, summary) }}, err
	})
}

// loadRun loads a configuration. It rejects that of a run directory which was moved or copied: its
// train.out still names the old directory, and the new run would be trained there.
func loadRun(path string, sets []string) (*config.Config, error) {
	cfg, err := config.Load(path, sets)
	overridesOut := func(set string) bool {
		key, _, _ := strings.Cut(set, "=")
		return strings.TrimSpace(key) == "train.out"
	}
	if err != nil || filepath.Base(path) != rundir.ConfigFile ||
		slices.ContainsFunc(sets, overridesOut) {
		return cfg, err
	}
	dir := filepath.Dir(path)
	run, err := rundir.At(dir).Provenance().Exists()
	if err != nil || !run {
		return cfg, err
	}
	here, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if there, err := filepath.Abs(cfg.Train.Out); err != nil || there == here {
		return cfg, err
	}
	e := cfg.ErrorAt("train.out", "this is the configuration of the run in %s, and says %q",
		dir, cfg.Train.Out)
	e.Hint = fmt.Sprintf("give --set 'train.out=%q' to continue that run, or another directory for "+
		"a new one", dir)
	return nil, e
}

func printMemory(w io.Writer, cfg *config.Config, r *build.Report) {
	switch {
	case r.By == build.ByXLA:
		fmt.Fprintf(w, "%s, which has compiled the step in %.0f s:\n", r.Summary(), r.Seconds)
	default:
		fmt.Fprintf(w, "%s, by an estimate that may be off by %.0f %%:\n",
			strings.TrimPrefix(r.Summary(), "about "), 100*r.Accuracy)
	}
	for _, p := range r.Parts {
		fmt.Fprintf(w, "  %s\n", p)
	}
	switch {
	case r.Available == nil && !r.Fits:
		fmt.Fprintln(w, "no machine has that")
	case r.Available == nil:
		fmt.Fprintf(w, "what %s has is not known before the run begins\n", cfg.Device.Kind)
	case !r.Fits:
		fmt.Fprintf(w, "%s, which is too little\n%s\n", r.Available, r.Remedies())
	default:
		fmt.Fprintln(w, r.Available)
	}
}

func joinOthers(
	cmd *cobra.Command, cfg *config.Config, place processes.Position,
) (*processes.Group, error) {
	return processes.Join(cmd.Context(), place, processes.Run{
		Dir:  rundir.At(cfg.Train.Out).Checkpoints(),
		Tell: func(message string) { newLogger(cmd).Info(message) },
	})
}

func printSummary(w io.Writer, s *metrics.Summary) {
	fmt.Fprintf(w, "%s: %d of %d steps", s.Dir, s.Steps, s.TotalSteps)
	if s.Tokens > 0 {
		fmt.Fprintf(w, ", %d tokens", s.Tokens)
	}
	fmt.Fprintf(w, " in %.1f s", float64(s.Seconds))
	if s.TokensPerSecond != nil {
		fmt.Fprintf(w, " (%.0f tokens/s)", float64(*s.TokensPerSecond))
	}
	fmt.Fprintln(w)
	switch {
	case s.ValPPL != nil:
		fmt.Fprintf(w, "validation loss %.4f, perplexity %.3f\n", float64(*s.ValLoss), float64(*s.ValPPL))
	case s.ValLoss != nil:
		fmt.Fprintf(w, "loss %.6g", float64(*s.ValLoss))
		if s.Distance != nil {
			fmt.Fprintf(w, ", distance to the optimum %.6g", float64(*s.Distance))
		}
		fmt.Fprintln(w)
	}
	if s.Skipped > 0 {
		fmt.Fprintf(w, "%d steps were not finite and skipped\n", s.Skipped)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Counts)) {
		fmt.Fprintf(w, "%s: %s %d\n", s.Method, strings.ReplaceAll(name, "_", " "), s.Counts[name])
	}
	if s.Uncorrected > 0 {
		fmt.Fprintf(w, "%d corrections of single weights were left out, as x − Q(x) was not finite\n",
			s.Uncorrected)
	}
}

// checkpointsAt returns the checkpoint at path, or all checkpoints of a run directory by step.
func checkpointsAt(path string) ([]vfs.Path, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is neither a checkpoint nor a run directory %s", path)
	}
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []vfs.Path{vfs.At(path)}, nil
	}
	entries, err := checkpoint.List(rundir.At(path).Checkpoints())
	if err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		return nil, fmt.Errorf("%s has no checkpoints: name a run directory, or a file in its "+
			"directory of checkpoints", path)
	}
	var list []vfs.Path
	for _, e := range entries {
		list = append(list, e.Path)
	}
	return list, nil
}

type verifiedCheckpoint struct {
	File    string `json:"file"`
	Intact  bool   `json:"intact"`
	Unread  bool   `json:"unread,omitempty"` // whether it is intact is unknown
	Finite  bool   `json:"finite"`
	Step    *int   `json:"step,omitempty"`
	Tensors int    `json:"tensors,omitempty"`
	Bytes   int64  `json:"bytes,omitempty"`
	SHA256  string `json:"sha256,omitempty"`
	Error   string `json:"error,omitempty"`
}

func newCheckpoint() *cobra.Command {
	verify := newCheckpointVerify()
	return group(&cobra.Command{Use: "checkpoint", Short: "Verify checkpoints"}, verify)
}

func newCheckpointVerify() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify FILE|RUN...",
		Short: "Read checkpoints and compare them with their hashes",
		Long: `Read checkpoints, or all those of run directories, to the last byte and compare them
with the hashes that they carry; those of a run directory must be of that run. The exit
code is 1 when one is damaged or cannot be read; of a damaged one, the tensors that
differ are named. Training verifies the checkpoints that it resumes from and keeps.`,
		Args: atLeastOne("checkpoint or run directory"),
	}
	return withAnswer(cmd, func(_ *cobra.Command, args []string) (*answer, error) {
		var list []verifiedCheckpoint
		var rows [][]string
		damaged, unread := 0, 0
		for _, arg := range args {
			paths, err := checkpointsAt(arg)
			if err != nil {
				return nil, err
			}
			for _, path := range paths {
				v := verifyCheckpoint(arg, path)
				result := v.Error
				switch {
				case v.Intact:
					result = fmt.Sprintf("intact: step %d, %d tensors, %d bytes", *v.Step, v.Tensors, v.Bytes)
					if !v.Finite {
						result += "; a parameter is not finite or a state is NaN: no run can go on from it"
					}
				case v.Unread:
					unread++
				default:
					damaged++
				}
				list, rows = append(list, v), append(rows, []string{v.File, result})
			}
		}
		var err error
		if damaged > 0 {
			err = fmt.Errorf("%d of %d checkpoints are damaged", damaged, len(list))
		}
		if unread > 0 {
			err = errors.Join(err, fmt.Errorf(
				"%d of %d checkpoints could not be read, and may be intact", unread, len(list)))
		}
		return tableAnswer(list, rows), err
	})
}

// verifyCheckpoint reads a checkpoint completely. arg is the command's argument, the file itself or
// its run directory; the checkpoint must belong to that run.
func verifyCheckpoint(arg string, path vfs.Path) verifiedCheckpoint {
	v := verifiedCheckpoint{File: path.Name}
	f, err := checkpoint.Open(path)
	if err == nil {
		defer f.Close()
		if err = f.Verify(); err == nil {
			v.Finite, err = f.Finite()
		}
	}
	if err == nil && arg != path.Name {
		var made *provenance.Record
		if made, err = provenance.Read(rundir.At(arg)); err == nil {
			err = made.CheckOwner(rundir.At(arg), f.Step, f.Meta)
		}
	}
	if err != nil {
		v.Error = err.Error()
		_, v.Unread = errors.AsType[syscall.Errno](err)
		if errors.Is(err, syscall.EMFILE) {
			v.Error += ": this process may open no more files; raise the limit (ulimit -n)"
		}
		return v
	}
	v.Intact, v.Step, v.Tensors = true, &f.Step, len(f.Tensors)
	v.Bytes, v.SHA256 = f.Size(), f.Digest()
	return v
}
