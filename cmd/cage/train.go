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

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/data/chat"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/processes"
	"github.com/cage-qat/cage/host/train/provenance"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/vfs"
)

func newTrain() *cobra.Command {
	opts := train.Options{EndOfTurn: chat.EndOfTurn}
	var sets []string
	var quiet, estimate bool
	var together string
	cmd := &cobra.Command{
		Use:   "train RUN.toml",
		Short: "Train a model",
		Long: `Train the model that a TOML file configures.

The run directory (train.out, by default runs/NAME for NAME.toml) receives the resolved
configuration, metrics, checkpoints and a summary. On Ctrl-C, SIGTERM, SIGQUIT or SIGHUP,
training finishes the current step, saves a checkpoint and stops; --resume continues the
run, on the CPU with the same bits as without a stop. A run can be extended with a larger
train.steps, or data.epochs of conversations, if that does not change the learning rate
and λ of past steps: with the schedule "constant" at any time, with "wsd" before its
decay.

With --estimate, nothing is trained: the memory that the run would need is printed by
part, and the memory that is available.

With --processes, several processes train one model, each on some of the GPUs: start the
same command for each process, on one machine or several. The ranks of the processes, and
the address of the first, come from Slurm (slurm: srun), torchrun, an indexed Job of
Kubernetes with WORLD_SIZE and MASTER_ADDR (kubernetes), or are given as
RANK/SIZE@HOST:PORT. device.count is the number of GPUs of all processes. All processes
need the same run directory, on a shared file system; the first one writes it. Without
--processes, a single process trains, whatever is in its environment.

Every key can be overridden with --set, with values in TOML:

  cage train examples/demo.toml --set train.steps=50 --set 'quantizer.plugin="absmax"'

See 'cage config' for all keys and 'cage plugins show NAME' for a plugin's.`,
		Args: notNegative(exactly(1, "one TOML file"), "stop-after"),
	}
	flags := cmd.Flags()
	flags.BoolVar(&opts.Resume, "resume", false, "continue the run in train.out, or start it")
	flags.StringArrayVar(&sets, "set", nil, "override a key of the file: `KEY=VALUE` (repeatable)")
	flags.BoolVar(&quiet, "quiet", false, "print messages, but no progress")
	flags.BoolVar(&estimate, "estimate", false,
		"only print the memory that the run needs: an estimate, or on a GPU the report of XLA")
	flags.StringVar(&together, "processes", "",
		"train together with other processes; the ranks come from `SOURCE`: "+processes.Sources)
	parentPipeFlag(cmd)
	flags.IntVar(&opts.StopAfter, "stop-after", 0,
		"stop after this many steps of the run, with a checkpoint; 0: never")
	return withOutput(cmd, func(cmd *cobra.Command, args []string) (*output, error) {
		place := processes.Position{Size: 1}
		// An empty SOURCE is an error: an unset variable must not start a run with a single process.
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
			return &output{report, func(w io.Writer) { printMemory(w, cfg, report) }}, nil
		}
		var group *processes.Group
		if place.Size > 1 { // only the first process shows progress and the summary
			group, err = processes.Join(cmd.Context(), place, processes.Run{
				Dir:  rundir.At(cfg.Train.Out).Checkpoints(),
				Tell: func(message string) { newLogger(cmd).Info(message) },
			})
			if err != nil {
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
		return &output{summary, func(w io.Writer) { printSummary(w, summary) }}, err
	})
}

// loadRun loads a configuration. It rejects the configuration in a run directory that was moved or
// copied, because its train.out still names the old directory.
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
	a, failed := os.Stat(dir) // the same directory may be named through a symbolic link
	if b, err := os.Stat(cfg.Train.Out); failed == nil && err == nil && os.SameFile(a, b) {
		return cfg, nil
	}
	return nil, cfg.ErrorAt("train.out", "this is the configuration of the run in %s, "+
		"but its value is %q", dir, cfg.Train.Out).
		WithHint(fmt.Sprintf("want --set 'train.out=%q' to continue that run, or another directory "+
			"for a new run", dir))
}

func printMemory(w io.Writer, cfg *config.Config, r *build.Report) {
	if r.By == build.ByXLA {
		fmt.Fprintf(w, "%s, which has compiled the step in %.0f s:\n", r.Summary(), r.Seconds)
	} else {
		fmt.Fprintf(w, "%s, by an estimate that may be off by %.0f %%:\n",
			strings.TrimPrefix(r.Summary(), "about "), 100*r.Accuracy)
	}
	for _, p := range r.Parts {
		fmt.Fprintf(w, "  %s\n", p)
	}
	switch {
	case r.Available == nil && !r.Fits:
		fmt.Fprintln(w, "no machine has that much")
	case r.Available == nil:
		fmt.Fprintf(w, "the memory of %s is not known before the run starts\n", cfg.Device.Kind)
	case !r.Fits:
		fmt.Fprintf(w, "%s, which is too little\n%s\n", r.Available, r.Remedies())
	default:
		fmt.Fprintln(w, r.Available)
	}
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
		fmt.Fprintf(w, "%d steps were skipped, because a value was not finite\n", s.Skipped)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Counts)) {
		fmt.Fprintf(w, "%s: %s %d\n", s.Method, strings.ReplaceAll(name, "_", " "), s.Counts[name])
	}
	if s.Uncorrected > 0 {
		fmt.Fprintf(w, "%d tensor corrections were skipped, because x − Q(x) was not finite\n",
			s.Uncorrected)
	}
}

// checkpointsAt returns the checkpoint at path or, if path is a run directory, all its checkpoints
// in the order of their steps.
func checkpointsAt(path string) ([]vfs.Path, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no checkpoint or run directory %s", path)
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
		return nil, fmt.Errorf("%s has no checkpoints: want a run directory with checkpoints, or a "+
			"checkpoint file", path)
	}
	return lists.Map(entries, func(e checkpoint.Entry) vfs.Path { return e.Path }), nil
}

type verifiedCheckpoint struct {
	File    string `json:"file"`
	Intact  bool   `json:"intact"`
	Unread  bool   `json:"unread,omitempty"` // could not be read, and may be intact
	Finite  bool   `json:"finite"`
	Step    *int   `json:"step,omitempty"`
	Tensors int    `json:"tensors,omitempty"`
	Bytes   int64  `json:"bytes,omitempty"`
	SHA256  string `json:"sha256,omitempty"`
	Error   string `json:"error,omitempty"`
}

func newCheckpoint() *cobra.Command {
	verify := &cobra.Command{
		Use:   "verify FILE|RUN...",
		Short: "Check checkpoints against their hashes",
		Long: `Read checkpoints, or all checkpoints of run directories, and check them against the hashes
that they contain. Checkpoints in a run directory must belong to that run. The exit code
is 1 if one is damaged or cannot be read; the damaged tensors are named. Training verifies
the checkpoints that it keeps and the one that it resumes from.`,
		Args: atLeastOne("checkpoint or run directory"),
	}
	withOutput(verify, func(_ *cobra.Command, args []string) (*output, error) {
		var list []verifiedCheckpoint
		var rows [][]string
		damaged, unread := 0, 0
		for _, arg := range args {
			paths, err := checkpointsAt(arg)
			if err != nil {
				return nil, err
			}
			for i := 0; i < len(paths); i++ {
				path := paths[i]
				v := verifyCheckpoint(arg, path)
				if _, gone := path.Lstat(); !v.Intact && errors.Is(gone, fs.ErrNotExist) {
					newer, err := checkpointsAt(arg) // a training has saved others
					if err != nil {
						return nil, err
					}
					known := paths[:i+1]
					paths = slices.Concat(known, slices.DeleteFunc(newer, func(p vfs.Path) bool {
						return slices.Contains(known, p)
					}))
					continue
				}
				result := v.Error
				switch {
				case v.Intact:
					result = fmt.Sprintf("intact: step %d, %d tensors, %d bytes", *v.Step, v.Tensors, v.Bytes)
					if !v.Finite {
						result += "; a parameter is not finite or a state is NaN: it cannot be resumed from"
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
				"%d of %d checkpoints could not be read and may be intact", unread, len(list)))
		}
		return tableOutput(list, rows), err
	})
	return group(&cobra.Command{Use: "checkpoint", Short: "Verify checkpoints"}, verify)
}

// verifyCheckpoint reads the whole checkpoint at path. arg is the command's argument: either the
// checkpoint itself or its run directory.
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
			v.Error += ": this process has too many open files; raise the limit (ulimit -n)"
		}
		return v
	}
	v.Intact, v.Step, v.Tensors = true, &f.Step, len(f.Tensors)
	v.Bytes, v.SHA256 = f.Size(), f.Digest()
	return v
}
