// Package checkpoint keeps the states from which a training run can go on: one
// safetensors file per checkpoint, named by the optimizer step it was taken after.
//
// A checkpoint is complete or absent, and each of its tensors proves when it is read
// that it is what was saved. Neither saving nor loading holds more than one tensor in
// memory. What a state consists of (which tensors, which counters) is decided by
// host/train; how tensors lie in a file, by host/safetensors.
package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/host/safetensors"
	"github.com/cage-qat/cage/internal/vfs"
)

// State is everything that a run needs in order to continue as if it had never
// stopped.
type State struct {
	Step    int                  // optimizer steps done, ≥ 0
	Tensors []safetensors.Tensor // parameters and optimizer states, read one by one
	Meta    Meta                 // everything else; the key "step" is reserved
}

// Entry is a checkpoint in a directory.
type Entry struct {
	Step int
	Path vfs.Path
}

// ErrNone is wrapped by the error of Latest for a directory without checkpoints, or
// that does not exist.
var ErrNone = errors.New("no checkpoint")

// ErrDamaged is wrapped by the error about a file that is not a checkpoint as
// Save wrote it.
var ErrDamaged = errors.New("damaged checkpoint")

// stepKey is the entry of the metadata that holds State.Step.
const stepKey = "step"

const (
	namePrefix = "step-"
	nameSuffix = ".safetensors"
)

// FileName returns the name of the file that holds the state after a step. Names
// sort by step up to step 99,999,999.
func FileName(step int) string { return fmt.Sprintf("%s%08d%s", namePrefix, step, nameSuffix) }

// stepOf is the inverse of FileName.
func stepOf(name string) (step int, ok bool) {
	digits := strings.TrimSuffix(strings.TrimPrefix(name, namePrefix), nameSuffix)
	step, err := strconv.Atoi(digits)
	return step, err == nil && step >= 0 && name == FileName(step)
}

// Save writes a state into dir, which it creates if need be, and returns the path
// of the file. A crash at any moment leaves either no file of that step (or the
// one that was there before) or the complete new one. A cancelled ctx stops the
// writing with nothing changed.
func Save(ctx context.Context, dir vfs.Path, s State) (vfs.Path, error) {
	if s.Step < 0 {
		return vfs.Path{}, fmt.Errorf("save checkpoint: step %d, want at least 0", s.Step)
	}
	if _, ok := s.Meta[stepKey]; ok {
		return vfs.Path{}, fmt.Errorf("save checkpoint: the metadata key %q is reserved", stepKey)
	}
	if err := dir.MkdirAll(); err != nil {
		return vfs.Path{}, fmt.Errorf("save checkpoint: %w", err)
	}
	metadata := make(map[string]string, len(s.Meta)+1)
	for key, value := range s.Meta {
		metadata[key] = value
	}
	metadata[stepKey] = strconv.Itoa(s.Step)
	path := dir.Join(FileName(s.Step))
	if err := safetensors.WriteFile(ctx, path, s.Tensors, metadata); err != nil {
		return vfs.Path{}, fmt.Errorf("save checkpoint: %w", err)
	}
	return path, nil
}

// Steps are those of the checkpoints, in their order; never nil.
func Steps(entries []Entry) []int {
	steps := make([]int, len(entries))
	for i, e := range entries {
		steps[i] = e.Step
	}
	return steps
}

// List returns the checkpoints in dir by ascending step, without opening them. A
// directory that does not exist has none.
func List(dir vfs.Path) ([]Entry, error) {
	files, err := dir.ReadDir()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list checkpoints: %w", err)
	}
	var entries []Entry
	for _, file := range files {
		if step, ok := stepOf(file.Name()); ok {
			entries = append(entries, Entry{step, dir.Join(file.Name())})
		}
	}
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Step, b.Step) })
	return entries, nil
}
