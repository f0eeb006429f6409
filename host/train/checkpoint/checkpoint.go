// Package checkpoint stores the states from which a training run can be resumed. Each checkpoint is
// a safetensors file named after the last optimizer step, plus one part per process if tensors are
// sharded over processes.
//
// Checkpoints are written atomically, and tensors are verified by their digests when they are read.
// Neither saving nor loading holds more than one tensor in memory. Package host/train defines which
// tensors and counters a state contains; host/model/safetensors defines the file format.
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
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/vfs"
)

// State is everything that a run needs to resume exactly where it was saved.
type State struct {
	Step    int                  // optimizer steps done, ≥ 0
	Tensors []safetensors.Tensor // parameters and states, each read only when it is written
	Meta    Meta                 // everything else; the keys "step", "parts" and "finite" are reserved
}

// Entry is the step and path of a checkpoint.
type Entry struct {
	Step int
	Path vfs.Path
}

// ErrNone is wrapped by the errors of [Use] and [Latest] if there are no checkpoints.
var ErrNone = errors.New("no checkpoint")

// ErrDamaged is wrapped by errors about files whose content is not what [Save] has written.
var ErrDamaged = errors.New("damaged checkpoint")

const stepKey = "step"

const (
	namePrefix = "step-"
	nameSuffix = ".safetensors"
)

// FileName returns the file name of a step's checkpoint. Up to step 99,999,999, the names sort in
// the order of steps.
func FileName(step int) string { return fmt.Sprintf("%s%08d%s", namePrefix, step, nameSuffix) }

func stepOf(name string) (step int, ok bool) {
	digits := strings.TrimSuffix(strings.TrimPrefix(name, namePrefix), nameSuffix)
	step, err := strconv.Atoi(digits)
	return step, err == nil && step >= 0 && name == FileName(step)
}

// Save writes a state into dir, which it creates if necessary, and returns the path of the file. It
// writes all or nothing, even if ctx is canceled. parts are the names of the files that [SavePart]
// has written for this checkpoint.
func Save(ctx context.Context, dir vfs.Path, s State, parts ...string) (vfs.Path, error) {
	path, _, err := save(ctx, dir, s, parts)
	return path, err
}

// save implements Save and reports whether the state is finite.
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
			return fail(fmt.Errorf("metadata key %q is reserved", key))
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

// writeWatched writes a file and records in its metadata whether its tensors are finite.
func writeWatched(
	ctx context.Context, path vfs.Path, tensors []safetensors.Tensor, metadata map[string]string,
) error {
	tensors = watched(tensors, func() { metadata[finiteKey] = notFinite })
	return safetensors.WriteFile(ctx, path, tensors, metadata)
}

// Steps returns the steps of the given checkpoints. The result is never nil.
func Steps(entries []Entry) []int {
	return lists.Map(entries, func(e Entry) int { return e.Step })
}

// List returns the checkpoints in dir in ascending order of steps, without opening them. It returns
// none if dir does not exist.
func List(dir vfs.Path) ([]Entry, error) { return list(dir, stepOf) }

// list returns the files in dir for whose names stepOf returns true, in ascending order of steps.
func list(dir vfs.Path, stepOf func(name string) (int, bool)) ([]Entry, error) {
	files, err := dir.ReadDir()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list checkpoints: %w", err)
	}
	var entries []Entry
	for _, file := range files {
		if n, ok := stepOf(file.Name()); ok {
			entries = append(entries, Entry{n, dir.Join(file.Name())})
		}
	}
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Step, b.Step) })
	return entries, nil
}

// Meta holds the state outside tensors, such as seeds and counters. Values are stored as JSON, so
// that other programs can read them and numbers keep all their digits.
type Meta map[string]string

// Set stores value as JSON under key.
func (m Meta) Set(key string, value any) error {
	text, err := json.Marshal(value, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("checkpoint metadata %q: %w", key, err)
	}
	m[key] = string(text)
	return nil
}

// Get decodes the value stored under key into the variable that value points to. If the key is
// missing or the types differ, it returns an error that wraps ErrDamaged.
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

// GetIf is like Get but does nothing if the key is missing.
func (m Meta) GetIf(key string, value any) error {
	if _, ok := m[key]; !ok {
		return nil
	}
	return m.Get(key, value)
}
