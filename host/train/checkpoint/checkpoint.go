// Package checkpoint stores the states from which a training run can be resumed: one
// safetensors file per checkpoint, named by the optimizer step after which it was taken, plus
// one part per process if tensors are sharded over processes.
//
// A checkpoint is complete or absent, and when a tensor is read, its content is verified by
// its digest. Neither saving nor loading holds more than one tensor in memory. host/train
// defines the contents of a state (which tensors, which counters); host/model/safetensors
// defines the file format of tensors.
package checkpoint

import (
	"cmp"
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/vfs"
)

// State is everything that a run needs to continue as if it had never stopped.
type State struct {
	Step    int                  // optimizer steps done, ≥ 0
	Tensors []safetensors.Tensor // parameters and states, each read only when it is written
	Meta    Meta                 // everything else; the keys "step", "parts" and "finite" are reserved
}

// Entry is a checkpoint in a directory.
type Entry struct {
	Step int
	Path vfs.Path
}

// ErrNone is wrapped by the error of Latest if there are no checkpoints.
var ErrNone = errors.New("no checkpoint")

// ErrDamaged is wrapped by the error about a file that is not as Save has written it.
var ErrDamaged = errors.New("damaged checkpoint")

const stepKey = "step"

const (
	namePrefix = "step-"
	nameSuffix = ".safetensors"
)

// FileName returns the name of the checkpoint of a step. Names sort by step up to step
// 99,999,999.
func FileName(step int) string { return fmt.Sprintf("%s%08d%s", namePrefix, step, nameSuffix) }

func stepOf(name string) (step int, ok bool) {
	digits := strings.TrimSuffix(strings.TrimPrefix(name, namePrefix), nameSuffix)
	step, err := strconv.Atoi(digits)
	return step, err == nil && step >= 0 && name == FileName(step)
}

// Save writes a state into dir, which it creates if necessary, and returns the path of the file. It
// is atomic, also if ctx is cancelled. parts are the names of the files that [SavePart] has
// written.
func Save(ctx context.Context, dir vfs.Path, s State, parts ...string) (vfs.Path, error) {
	path, _, err := save(ctx, dir, s, parts)
	return path, err
}

// save does the work of Save, and reports whether the state is finite.
func save(
	ctx context.Context, dir vfs.Path, s State, parts []string,
) (path vfs.Path, finite bool, err error) {
	fail := func(err error) (vfs.Path, bool, error) {
		return vfs.Path{}, false, fmt.Errorf("save checkpoint: %w", err)
	}
	if s.Step < 0 {
		return fail(fmt.Errorf("step %d, want at least 0", s.Step))
	}
	for _, key := range []string{stepKey, partsKey, finiteKey} {
		if _, ok := s.Meta[key]; ok {
			return fail(fmt.Errorf("the metadata key %q is reserved", key))
		}
	}
	if err := dir.MkdirAll(); err != nil {
		return fail(err)
	}
	metadata := map[string]string{stepKey: strconv.Itoa(s.Step), finiteKey: isFinite}
	maps.Copy(metadata, s.Meta)
	if len(parts) > 0 {
		if err := describeParts(metadata, dir, parts); err != nil {
			return fail(err)
		}
	}
	path = dir.Join(FileName(s.Step))
	if err := writeWatched(ctx, path, s.Tensors, metadata); err != nil {
		return fail(err)
	}
	return path, metadata[finiteKey] == isFinite, nil
}

// writeWatched writes a file and sets in its metadata whether it is finite.
func writeWatched(
	ctx context.Context, path vfs.Path, tensors []safetensors.Tensor, metadata map[string]string,
) error {
	tensors = watched(tensors, func() { metadata[finiteKey] = notFinite })
	return safetensors.WriteFile(ctx, path, tensors, metadata)
}

// Steps returns the steps of checkpoints; never nil.
func Steps(entries []Entry) []int {
	steps := make([]int, len(entries))
	for i, e := range entries {
		steps[i] = e.Step
	}
	return steps
}

// List returns the checkpoints in dir by ascending step, without opening them. If the
// directory does not exist, there are none.
func List(dir vfs.Path) ([]Entry, error) { return list(dir, stepOf) }

// list returns the files whose names step accepts, by ascending step.
func list(dir vfs.Path, step func(name string) (int, bool)) ([]Entry, error) {
	files, err := dir.ReadDir()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list checkpoints: %w", err)
	}
	var entries []Entry
	for _, file := range files {
		if n, ok := step(file.Name()); ok {
			entries = append(entries, Entry{n, dir.Join(file.Name())})
		}
	}
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Step, b.Step) })
	return entries, nil
}

// Meta holds the state that is not in tensors: total steps, seeds, counters, the identity of
// the run. Each value is stored as JSON text, so that any program can read it and numbers
// keep all digits.
type Meta map[string]string

// Set stores a value under key, as JSON.
func (m Meta) Set(key string, value any) error {
	text, err := json.Marshal(value, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("checkpoint metadata %q: %w", key, err)
	}
	m[key] = string(text)
	return nil
}

// Get decodes the value under key into the variable that value points to. A
// missing key, or a value of another type, is an error that wraps ErrDamaged.
func (m Meta) Get(key string, value any) error {
	text, ok := m[key]
	if !ok {
		return fmt.Errorf("%w: metadata has no %q", ErrDamaged, key)
	}
	if err := json.Unmarshal([]byte(text), value, json.RejectUnknownMembers(true)); err != nil {
		return fmt.Errorf("%w: metadata %q: %w", ErrDamaged, key, plainjson.Explain([]byte(text), err))
	}
	return nil
}

// GetIf is like Get, but if the key is missing, it does nothing.
func (m Meta) GetIf(key string, value any) error {
	if _, ok := m[key]; !ok {
		return nil
	}
	return m.Get(key, value)
}
