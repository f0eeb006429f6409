package main

import (
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/train/records"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

func newRunsExport() *cobra.Command {
	var table, events string
	cmd := &cobra.Command{
		Use:   "export RUN...",
		Short: "Write the records of runs for other programs",
		Long: `Write the records of runs for other programs: as one table of comma-separated values, as event
files, which TensorBoard shows and Weights & Biases takes, or as both.

  cage runs export runs/a runs/b --csv records.csv
  cage runs export runs/* --tensorboard events
  tensorboard --logdir events
  wandb sync --sync-tensorboard events/a    (wandb up to 0.29; docs/serve.md has a way for later ones)

A run with train.tensorboard = true writes event files while it trains.`,
		Args: atLeastOne("run directory"),
	}
	cmd.Flags().StringVar(&table, "csv", "", "write a table to `FILE`; -: to the standard output")
	cmd.Flags().StringVar(&events, "tensorboard", "", "write event files to `DIR`, a folder for each run")
	return answering(cmd, func(cmd *cobra.Command, args []string) (*answer, error) {
		if table == "" && events == "" {
			return nil, usageError{errors.New("want --csv FILE, --tensorboard DIR or both")}
		}
		var names records.Columns
		list, err := records.Open(cmd.ErrOrStderr(), args, names.Add)
		if err != nil {
			return nil, err
		}
		if events != "" { // which is refused where there are files already, before a table is replaced
			if err := records.WriteEvents(vfs.At(events), list); err != nil {
				return nil, err
			}
		}
		switch table {
		case "":
		case "-":
			return nil, names.Write(cmd.OutOrStdout(), list)
		default:
			to, err := atomicfile.Target(table)
			if err == nil {
				err = atomicfile.Write(to, func(w io.Writer) error { return names.Write(w, list) })
			}
			if err != nil {
				return nil, err
			}
		}
		out := slices.DeleteFunc([]string{table, events}, func(name string) bool { return name == "" })
		return inWords(map[string]any{"runs": len(list), "out": out}, "the records of %d runs are in %s\n", len(list), strings.Join(out, " and ")), nil
	})
}
