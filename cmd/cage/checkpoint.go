package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/provenance"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/vfs"
)

func newCheckpoint() *cobra.Command {
	return group(&cobra.Command{Use: "checkpoint", Short: "Verify checkpoints"}, newCheckpointVerify())
}

// checkpointsAt returns a checkpoint given by its file, or all of a run directory, in the order of their steps.
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

type verifiedCheckpoint struct {
	File    string `json:"file"`
	Intact  bool   `json:"intact"`
	Unread  bool   `json:"unread,omitempty"` // whether it is intact is not known: it could not be read
	Finite  bool   `json:"finite"`
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
code is 1 when one is damaged or cannot be read; of a damaged one, the tensors that
differ are named. Training verifies what it goes on from, and what it keeps, by itself.`,
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
			err = errors.Join(err, fmt.Errorf("%d of %d checkpoints could not be read, and may be intact", unread, len(list)))
		}
		return tableAnswer(list, rows), err
	})
}

// verifyCheckpoint reads a checkpoint to its end. arg is the argument that named it: the file itself or its run directory,
// whose run it must belong to.
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
		err = provenance.CheckOwner(rundir.At(arg), f.Step, f.Meta)
	}
	if err != nil {
		v.Error = err.Error()
		_, v.Unread = errors.AsType[syscall.Errno](err)
		if errors.Is(err, syscall.EMFILE) {
			v.Error += ": this process may open no more files; raise the limit (ulimit -n)"
		}
		return v
	}
	v.Intact, v.Step, v.Tensors, v.Bytes, v.SHA256 = true, &f.Step, len(f.Tensors), f.Size(), f.Digest()
	return v
}
