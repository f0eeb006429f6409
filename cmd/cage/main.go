// Command cage trains language models so that they survive quantization: the host
// of quantizer and optimizer plugins. Each subcommand lives in a file of its own;
// what they do is done by the packages under host/.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/train"
)

// Exit codes.
const (
	exitError       = 1
	exitUsage       = 2
	exitInterrupted = 130 // as a shell reports a process ended by SIGINT
)

func main() { os.Exit(run(os.Args[1:])) }

// run executes the command line and returns the exit code.
func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	root := newRoot()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var usage usageError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, train.ErrInterrupted):
		fmt.Fprintln(os.Stderr, "cage: interrupted; go on with --resume")
		return exitInterrupted
	case errors.As(err, &usage):
		fmt.Fprintf(os.Stderr, "cage: %v\nSee 'cage help'.\n", err)
		return exitUsage
	default:
		fmt.Fprintf(os.Stderr, "cage: %v\n", err)
		return exitError
	}
}

// usageError is a mistake on the command line.
type usageError struct{ error }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "cage",
		Short: "Quantization-aware training with curvature-aware gradient estimation",
		Long: `cage trains language models so that they survive 4-bit quantization.

Quantizers and optimizers are plugins: programs of their own that hand their
algorithms to the host when a run starts. Any quantizer runs with any optimizer,
with or without the CAGE correction, from one TOML file.

  cage data prepare TEXT... --out DIR    make token files
  cage train RUN.toml                    train, with checkpoints and metrics
  cage eval RUN                          evaluate a run on its validation set
  cage plugins list                      what can be named in the TOML
  cage config                            every key of the TOML, with its default`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.PersistentFlags().String("log-level", "info", "messages to show: trace, debug, info, warn, error or off")
	root.AddCommand(newTrain(), newEval(), newGenerate(), newPlot(), newCompare(), newData(), newPlugins(), newConfig(), newVersion())
	return root
}

// exactly accepts n arguments and says what they are when they are missing.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != n {
			return usageError{fmt.Errorf("expected %s, got %d arguments", what, len(args))}
		}
		return nil
	}
}

// atLeastOne accepts one or more arguments.
func atLeastOne(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usageError{fmt.Errorf("expected at least one %s", what)}
		}
		return nil
	}
}
