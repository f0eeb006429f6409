package main

import (
	"fmt"

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
		Args: notNegative(exactly(1, "one run directory"), "from"),
	}
	cmd.Flags().IntVar(&from, "from", 0, "replay from the checkpoint of this `STEP` to the next, 0 being the beginning")
	cmd.Flags().BoolVar(&quiet, "quiet", false, "show messages, but no progress")
	return answering(cmd, func(cmd *cobra.Command, args []string) (*answer, error) {
		log, err := newLogger(cmd, cmd.ErrOrStderr())
		if err != nil {
			return nil, err
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
			return nil, err
		}
		if len(replayed.Differences) > 0 {
			err = fmt.Errorf("%s is not what its steps %d to %d give: %s", replayed.Run, replayed.From+1, replayed.To, replayed.Differences[0])
		}
		return inWords(replayed, "%s", describeReplayed(replayed)), err
	})
}

// describeReplayed says what a replay has found.
func describeReplayed(r *train.Replayed) string {
	verdict := "every bit is the same"
	if n := len(r.Differences); n > 0 {
		verdict = fmt.Sprintf("%d parts differ", n)
	}
	text := fmt.Sprintf("%s, steps %d to %d: %s (%d tensors, %d numbers)\n", r.Run, r.From+1, r.To, verdict, r.Tensors, r.Numbers)
	if r.Recorded != r.Now {
		text += fmt.Sprintf("computed by two builds, whose bits may differ:\n  recorded %s\n  now      %s\n", r.Recorded, r.Now)
	}
	for _, d := range r.Differences {
		text += fmt.Sprintf("  %s\n", d)
	}
	return text
}
