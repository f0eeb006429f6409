// Command cage trains language models so that they survive quantization. It hosts quantizer and
// optimizer plugins. Each file defines subcommands, their flags and their output; the packages
// under host/ do the work.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/internal/safetext"
	"github.com/cage-qat/cage/internal/schema"
)

// Exit codes.
const (
	exitError       = 1
	exitUsage       = 2
	exitInterrupted = 130 // as shells report a process killed by SIGINT
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	ctx, stop := interruptible()
	defer stop()
	out, errOut := &stdStream{file: os.Stdout}, &stdStream{file: os.Stderr}
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errOut)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		err = out.firstError()
	}
	if err == nil {
		return 0
	}
	code, message := explain(cmd, err, ctx.Err())
	if lost := out.firstError(); lost != nil && code == 0 { // of --stop-after
		code, message = exitError, message+"\n"+lost.Error()
	}
	fmt.Fprintln(errOut, "cage: "+safetext.Message(message))
	return code
}

// explain returns the exit code and the message for err. stopped is the error of the command's
// context; it is not nil after a signal.
func explain(cmd *cobra.Command, err, stopped error) (code int, message string) {
	var usage usageError
	switch {
	case errors.Is(err, train.ErrStoppedElsewhere):
		return exitInterrupted, "stopped, because another process of this training was told to stop; " +
			"continue with --resume"
	case errors.Is(err, train.ErrInterrupted) && stopped == nil:
		return 0, "stopped after the steps of --stop-after; continue with --resume"
	case errors.Is(err, study.ErrInterrupted):
		return exitInterrupted, fmt.Sprintf("%v; run the same command again to resume it", err)
	case errors.Is(err, errWaits):
		return exitInterrupted, err.Error()
	case errors.Is(err, train.ErrInterrupted):
		return exitInterrupted, "interrupted; continue with --resume"
	case stopped != nil && errors.Is(err, stopped):
		return exitInterrupted, "interrupted"
	case stopped != nil: // a terminal sends Ctrl-C to plugins, too
		return exitInterrupted, fmt.Sprintf("interrupted: %v", err)
	case errors.As(err, &usage):
		return exitUsage, fmt.Sprintf("%v\nSee '%s --help'.", err, cmd.CommandPath())
	}
	return exitError, err.Error()
}

func newRoot() *cobra.Command {
	root := group(&cobra.Command{
		Use:   "cage",
		Short: "Quantization-aware training with curvature-aware gradient estimation",
		Long: `cage trains language models so that they survive 4-bit quantization.

Quantizers and optimizers are plugins: separate programs that describe their
algorithms to cage when a run starts. Any quantizer works with any optimizer,
with or without the CAGE correction. One TOML file configures a run.

  cage data prepare TEXT... --out DIR    make token files
  cage train RUN.toml                    train, with checkpoints and metrics
  cage eval RUN                          evaluate a run on its validation set
  cage serve                             show runs in a web browser while they train
  cage export RUN --to FORMAT --out DIR  write a model for other programs
  cage quantize RUN --out RUN            quantize a trained model without training
  cage plugins list                      list quantizers and optimizers
  cage config                            document the keys of the TOML file`,
		Version:           buildVersion(),
		SilenceErrors:     true,
		PersistentPreRunE: prepare,
		SilenceUsage:      true,
	})
	root.SetFlagErrorFunc(flagError)
	// Wrap flags at 80 columns, and omit the usage line of commands that only have subcommands.
	root.SetUsageTemplate(strings.NewReplacer(
		"FlagUsages ", "FlagUsagesWrapped 80 ",
		"{{if .Runnable}}", "{{if and .Runnable (or (not .HasAvailableSubCommands) (ne .Use .Name))}}",
	).Replace(root.UsageTemplate()))
	root.PersistentFlags().String("log-level", "info",
		"lowest level of messages shown: trace, debug, info, warn, error or off")
	root.AddCommand(surviveSIGPIPE(newTrain()), newImport(), surviveSIGPIPE(newQuantize()),
		newEval(), newScore(), surviveSIGPIPE(newRuler()), newGenerate(), newChat(), newExport(),
		surviveSIGPIPE(newPlot()), surviveSIGPIPE(newFit()), newData(), newPlugins(), newConfig(),
		newStudy(), newRuns(), newServe(), newCheckpoint(), newBench(),
		newVersion())
	// Add the completion command here, because the one that cobra adds later accepts unknown shells.
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil {
		group(completion)
	}
	return root
}

// interruptible returns a context that is cancelled by the first signal to stop: SIGINT, SIGTERM,
// SIGQUIT or SIGHUP, unless SIGHUP was ignored at the start, as under nohup. A second SIGINT or
// SIGTERM ends the process at once. So does a second SIGQUIT, which also prints the stacks of all
// goroutines, to show why the process did not stop. A second SIGHUP has no effect, because both
// the kernel and the shell send one when a session closes.
func interruptible() (context.Context, func()) {
	ctx, stop := signal.NotifyContext(context.Background(),
		os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT)
	context.AfterFunc(ctx, stop)
	if signal.Ignored(syscall.SIGHUP) {
		return ctx, stop
	}
	ctx, hangUp := context.WithCancel(ctx)
	closed := make(chan os.Signal, 1)
	signal.Notify(closed, syscall.SIGHUP)
	go func() {
		select {
		case <-closed:
			hangUp()
		case <-ctx.Done():
		}
	}()
	return ctx, func() { hangUp(); stop() }
}

const lifeline = "lifeline"

// parentPipeFlag adds --lifeline. With it, the command stops when standard input, a pipe from the
// parent process, is closed. The value is the time allowed for stopping; 0 disables the flag.
// [prepare] reads it.
func parentPipeFlag(cmd *cobra.Command) {
	cmd.Flags().Duration(lifeline, 0, "stop as on Ctrl-C when standard input "+
		"is closed, within this `TIME` (for programs that start this one)")
	cmd.Flags().Lookup(lifeline).NoOptDefVal = time.Minute.String()
}

// watchParent interrupts this process when standard input is closed, if --lifeline is set. Later
// signals have no effect, because Slurm signals all processes of a task while the parent also
// closes the pipe.
func watchParent(parentPipe time.Duration) {
	if parentPipe > 0 {
		// Disable the default action of these signals.
		signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGTERM)
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			if syscall.Kill(os.Getpid(), syscall.SIGINT) == nil {
				time.Sleep(parentPipe)
			}
			os.Exit(exitInterrupted)
		}()
	}
}

type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// group adds subcommands to a command that does nothing itself. Without arguments, it prints its
// help; any other argument is reported as an unknown command.
func group(cmd *cobra.Command, subcommands ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(subcommands...)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return unknownCommand(cmd, args[0])
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}

// unknownCommand returns an error for an unknown subcommand that suggests the nearest known one.
func unknownCommand(cmd *cobra.Command, name string) error {
	var known []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			known = append(known, c.Name())
		}
	}
	path := strings.TrimPrefix(cmd.CommandPath()+" "+name, cmd.Root().Name()+" ")
	err := fmt.Errorf("unknown command %q", path)
	if near := schema.Nearest(name, known); near != "" {
		err = fmt.Errorf("%w; did you mean %s?", err, near)
	}
	return usageError{err}
}

// flagError rewrites an error of pflag so that it states the accepted values or suggests the flag
// that was probably meant.
func flagError(cmd *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var known []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
		if near := schema.Nearest(unknown.GetSpecifiedName(), known); near != "" {
			err = fmt.Errorf("%w; did you mean --%s?", err, near)
		}
	}
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		wants := map[string]string{"bool": "true or false", "float64": "a number",
			"uint32": "an integer from 0 to 4294967295", "uint64": "an integer of at least 0",
			"duration": "a time such as 30s or 2m", "intSlice": "integers separated by commas",
			"stringSlice":    "values separated by commas, quoted as in CSV",
			"stringToString": "NAME=VALUE, or several separated by commas"}
		f := bad.GetFlag()
		want := cmp.Or(wants[f.Value.Type()], "an integer")
		err = fmt.Errorf("--%s %q: want %s", f.Name, bad.GetValue(), want)
	}
	return usageError{err}
}

// arguments returns a check that there are at least min and at most max arguments. want describes
// the expected arguments in error messages.
func arguments(min, max int, want string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch n := len(args); {
		case n >= min && n <= max:
			return nil
		case n == 0:
			return usagef("want %s", want)
		}
		return usagef("want %s, got %d arguments: %q", want, len(args), args)
	}
}

func exactly(n int, want string) cobra.PositionalArgs { return arguments(n, n, want) }

func atLeastOne(what string) cobra.PositionalArgs {
	return arguments(1, math.MaxInt, "at least one "+what)
}

// notNegative extends checkArgs with a check that the named flags are not negative.
func notNegative(checkArgs cobra.PositionalArgs, flags ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := checkArgs(cmd, args); err != nil {
			return err
		}
		for _, name := range flags {
			if f := cmd.Flags().Lookup(name); strings.HasPrefix(f.Value.String(), "-") {
				return usagef("--%s %s: want 0 or more", name, f.Value)
			}
		}
		return nil
	}
}
