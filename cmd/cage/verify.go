package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/train"
)

func newVerify() *cobra.Command {
	var from int
	var quiet bool
	cmd := &cobra.Command{
		Use:   "verify RUN",
		Short: "Replay a part of a run and compare every bit",
		Long: `Do the steps between two checkpoints of a run once more, with the run's own
configuration, plugins and data, and compare every bit of the parameters and states with
the second checkpoint. By default these are the last two that are kept (train.keep); of a
run with a single one, all steps up to it are replayed. The run directory is only read.

The exit code is 1 when a bit differs. Bits are the same on the CPU and with the build
that trained; another build, or a GPU, may round differently.`,
		Args: exactly(1, "one run directory"),
	}
	asJSON := jsonFlag(cmd)
	cmd.Flags().IntVar(&from, "from", 0, "replay from the checkpoint of this `STEP` to the next, 0 being the beginning")
	cmd.Flags().BoolVar(&quiet, "quiet", false, "show messages, but no progress")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := notNegative(cmd, "from"); err != nil {
			return err
		}
		log, err := newLogger(cmd, nil)
		if err != nil {
			return err
		}
		opts := train.ReplayOptions{Logger: log}
		if !quiet {
			opts.Console = drawing(cmd.ErrOrStderr())
		}
		if cmd.Flags().Changed("from") {
			opts.From = &from
		}
		replayed, err := train.Replay(cmd.Context(), args[0], opts)
		if err != nil {
			return err
		}
		if *asJSON {
			err = printJSON(cmd, replayed)
		} else {
			err = printReplayed(cmd.OutOrStdout(), replayed)
		}
		if err == nil && len(replayed.Differences) > 0 {
			err = fmt.Errorf("%s is not what its steps %d to %d give: %s", replayed.Run, replayed.From+1, replayed.To, replayed.Differences[0])
		}
		return err
	}
	return cmd
}

func printReplayed(w io.Writer, r *train.Replayed) error {
	verdict := "every bit is the same"
	if n := len(r.Differences); n > 0 {
		verdict = fmt.Sprintf("%d parts differ", n)
	}
	if _, err := fmt.Fprintf(w, "%s, steps %d to %d: %s (%d tensors, %d numbers)\n", r.Run, r.From+1, r.To, verdict, r.Tensors, r.Numbers); err != nil {
		return err
	}
	if r.Recorded != r.Now {
		if _, err := fmt.Fprintf(w, "computed by two builds, whose bits may differ:\n  recorded %s\n  now      %s\n", r.Recorded, r.Now); err != nil {
			return err
		}
	}
	for _, d := range r.Differences {
		if _, err := fmt.Fprintf(w, "  %s\n", d); err != nil {
			return err
		}
	}
	return nil
}
