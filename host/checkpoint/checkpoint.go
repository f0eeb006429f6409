// Package checkpoint keeps the states from which a training run can go on: one
// safetensors file per checkpoint, named by the optimizer step it was taken after.
//
// A checkpoint is complete or absent, and proves on loading that it is what was
// saved. What a state consists of (which tensors, which counters) is decided by
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
	Tensors []safetensors.Tensor // parameters and optimizer states
	Meta    Meta                 // everything else; the key "step" is reserved
}

// Entry is a checkpoint in a directory.
type Entry struct {
	Step int
	Path vfs.Path
}

// ErrNone is returned by Latest for a directory without checkpoints, or that
// does not exist.
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

// Load reads a checkpoint and verifies that it is complete and unchanged. An
// error that wraps ErrDamaged means that the content is at fault, any other one
// that the file could not be read.
func Load(path vfs.Path) (State, error) {
	tensors, metadata, err := safetensors.ReadFile(path)
	if err != nil {
		return State{}, readError(err)
	}
	step, err := stepIn(path, metadata)
	if err != nil {
		return State{}, err
	}
	return State{Step: step, Tensors: tensors, Meta: ownMeta(metadata)}, nil
}

// readError is the error about a file that could not be read as one of tensors.
func readError(err error) error {
	if errors.Is(err, safetensors.ErrFormat) || errors.Is(err, safetensors.ErrChecksum) {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return fmt.Errorf("load checkpoint: %w", err)
}

// stepIn checks what the metadata of a checkpoint must hold, and returns its step.
func stepIn(path vfs.Path, metadata map[string]string) (int, error) {
	if metadata[safetensors.DigestKey] == "" {
		return 0, fmt.Errorf("%w: %s: has no %s to verify its content with", ErrDamaged, path, safetensors.DigestKey)
	}
	step, err := strconv.Atoi(metadata[stepKey])
	if err != nil || step < 0 {
		return 0, fmt.Errorf("%w: %s: metadata: step is %q, want a number of steps", ErrDamaged, path, metadata[stepKey])
	}
	if named, ok := stepOf(path.Base()); ok && named != step {
		return 0, fmt.Errorf("%w: %s: is named for step %d but holds step %d", ErrDamaged, path, named, step)
	}
	return step, nil
}

// ownMeta is the metadata without what this package adds.
func ownMeta(metadata map[string]string) Meta {
	delete(metadata, safetensors.DigestKey)
	delete(metadata, stepKey)
	return metadata
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

// Latest loads the newest checkpoint in dir that is intact. Each newer one that is
// damaged is passed to warn (unless that is nil) and left where it is. The error
// is ErrNone when there are no checkpoints, and wraps ErrDamaged when there are
// only damaged ones: then a run must not start from the beginning unasked.
func Latest(dir vfs.Path, warn func(path vfs.Path, err error)) (State, error) {
	entries, err := List(dir)
	if err != nil {
		return State{}, err
	}
	if len(entries) == 0 {
		return State{}, fmt.Errorf("%w in %s", ErrNone, dir)
	}
	for _, entry := range slices.Backward(entries) {
		s, err := Load(entry.Path)
		if err == nil {
			return s, nil
		}
		if !errors.Is(err, ErrDamaged) {
			return State{}, err
		}
		if warn != nil {
			warn(entry.Path, err)
		}
	}
	return State{}, fmt.Errorf("%w: none of the %d checkpoints in %s is intact; to begin again, move them away", ErrDamaged, len(entries), dir)
}
