package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/checkpoint"
	"github.com/cage-qat/cage/host/rundir"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/internal/vfs"
)

func newCheckpoint() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "checkpoint",
		Short: "Show and verify checkpoints",
	})
	cmd.AddCommand(newCheckpointShow(), newCheckpointVerify())
	return cmd
}

// checkpointsAt are the checkpoint of that name, or those of a run directory by step.
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
		return nil, fmt.Errorf("%s has no checkpoints: name a run directory, or a file in its directory of checkpoints", path)
	}
	var list []vfs.Path
	for _, e := range entries {
		list = append(list, e.Path)
	}
	return list, nil
}

func newCheckpointShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show FILE|RUN",
		Short: "Show what a checkpoint says of itself",
		Long: `Show what a checkpoint says of itself, or the newest one of a run directory: its step,
the identity of its run, the build that wrote it, its tensors and its hash. The values are
not read: 'cage checkpoint verify' tells whether they are intact.`,
		Args: exactly(1, "one checkpoint or run directory"),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		list, err := checkpointsAt(args[0])
		if err != nil {
			return err
		}
		path := list[len(list)-1]
		info, err := checkpoint.Inspect(path)
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(cmd, shownCheckpoint(path, info))
		}
		rows := [][]string{{path.Name, ""}, {"step", fmt.Sprint(info.Step)}}
		for _, key := range slices.Sorted(maps.Keys(info.Meta)) {
			rows = append(rows, []string{key, info.Meta[key]})
		}
		rows = append(rows, []string{"bytes", fmt.Sprint(info.Size)}, []string{"SHA-256", info.Digest})
		if err := table(cmd.OutOrStdout(), rows); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(cmd.OutOrStdout()); err != nil {
			return err
		}
		rows = [][]string{{"tensor", "type", "bytes", "shape"}}
		for _, t := range info.Tensors {
			rows = append(rows, []string{t.Name, string(t.DType), fmt.Sprint(t.End - t.Begin), fmt.Sprint(t.Shape)})
		}
		return table(cmd.OutOrStdout(), rows)
	}
	return cmd
}

// checkpointShown is a checkpoint as printed in JSON.
type checkpointShown struct {
	File    string                     `json:"file"`
	Step    int                        `json:"step"`
	Meta    map[string]json.RawMessage `json:"meta"`
	Bytes   int64                      `json:"bytes"`
	SHA256  string                     `json:"sha256"`
	Tensors []tensorShown              `json:"tensors"`
}

type tensorShown struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Shape []int  `json:"shape"`
	Bytes int64  `json:"bytes"`
}

func shownCheckpoint(path vfs.Path, info checkpoint.Info) checkpointShown {
	out := checkpointShown{File: path.Name, Step: info.Step, Meta: map[string]json.RawMessage{},
		Bytes: info.Size, SHA256: info.Digest, Tensors: []tensorShown{}}
	for key, text := range info.Meta {
		raw := json.RawMessage(text)
		if !json.Valid(raw) { // not a checkpoint of ours
			raw, _ = json.Marshal(text)
		}
		out.Meta[key] = raw
	}
	for _, t := range info.Tensors {
		out.Tensors = append(out.Tensors, tensorShown{t.Name, string(t.DType), append([]int{}, t.Shape...), t.End - t.Begin})
	}
	return out
}

// checkpointVerified is a checkpoint that was read, as printed in JSON.
type checkpointVerified struct {
	File    string `json:"file"`
	Intact  bool   `json:"intact"`
	Step    *int   `json:"step,omitempty"`
	Tensors int    `json:"tensors,omitempty"`
	Bytes   int64  `json:"bytes,omitempty"`
	SHA256  string `json:"sha256,omitempty"`
	Error   string `json:"error,omitempty"`
}

func newCheckpointVerify() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify FILE|RUN...",
		Short: "Read checkpoints and compare them with their hashes",
		Long: `Read checkpoints, or all those of run directories, to the last byte and compare them
with the hashes that they carry; those of a run directory must be of that run. The exit
code is 1 when one is damaged. Training verifies what it goes on from, and what it keeps,
by itself.`,
		Args: atLeastOne("checkpoint or run directory"),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var list []checkpointVerified
		damaged := 0
		for _, arg := range args {
			paths, err := checkpointsAt(arg)
			if err != nil {
				return err
			}
			for _, path := range paths {
				v := verifyCheckpoint(arg, path)
				if !v.Intact {
					damaged++
				}
				list = append(list, v)
			}
		}
		if err := printVerifiedCheckpoints(cmd, *asJSON, list); err != nil {
			return err
		}
		if damaged > 0 {
			return fmt.Errorf("%d of %d checkpoints are damaged", damaged, len(list))
		}
		return nil
	}
	return cmd
}

// verifyCheckpoint reads a checkpoint that the argument stands for: itself, or its run.
func verifyCheckpoint(arg string, path vfs.Path) checkpointVerified {
	info, err := checkpoint.Verify(path)
	if err == nil && arg != path.Name {
		err = train.CheckOwner(rundir.At(arg), info.Step, info.Meta)
	}
	if err != nil {
		return checkpointVerified{File: path.Name, Error: err.Error()}
	}
	return checkpointVerified{File: path.Name, Intact: true, Step: &info.Step, Tensors: len(info.Tensors), Bytes: info.Size, SHA256: info.Digest}
}

func printVerifiedCheckpoints(cmd *cobra.Command, asJSON bool, list []checkpointVerified) error {
	if asJSON {
		return printJSON(cmd, list)
	}
	var rows [][]string
	for _, v := range list {
		found := v.Error
		if v.Intact {
			found = fmt.Sprintf("intact: step %d, %d tensors, %d bytes", *v.Step, v.Tensors, v.Bytes)
		}
		rows = append(rows, []string{v.File, found})
	}
	return table(cmd.OutOrStdout(), rows)
}
