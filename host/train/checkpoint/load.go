package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/vfs"
)

// File is an open checkpoint. Its header is verified; its tensors are read and verified
// when they are asked for. Until it is closed, its state can be saved elsewhere. The zero
// File represents the state before the first step, which has no tensors yet.
type File struct {
	State
	files []*safetensors.File // its own, then its parts
	// Parts are the files beside it; none if one process wrote the checkpoint.
	Parts []Part

	infos  []safetensors.Info              // of whole tensors
	at     map[string]int                  // of a whole tensor in infos
	pieces map[string][]safetensors.Tensor // of each, in their order
	finite *bool                           // nil: not known yet
}

// Open opens a checkpoint. An error that wraps ErrDamaged means that the content is
// damaged; any other error means that the file could not be read. The same holds for the
// errors of the File's methods and tensors.
func Open(path vfs.Path) (*File, error) {
	file, err := safetensors.Open(path)
	if isContent(err) {
		return nil, asDamage(err)
	}
	if err != nil {
		return nil, fmt.Errorf("load checkpoint: %w", err)
	}
	f := &File{files: []*safetensors.File{file}, State: State{Meta: file.Metadata()}}
	f.Step, err = strconv.Atoi(f.Meta[stepKey])
	switch named, ok := stepOf(path.Base()); {
	case f.Digest() == "":
		err = fmt.Errorf("%w: %s: has no %s to verify its content with", ErrDamaged, path, safetensors.HeaderDigestKey)
	case err != nil || f.Step < 0:
		err = fmt.Errorf("%w: %s: metadata: step is %q, want a number of steps", ErrDamaged, path, f.Meta[stepKey])
	case ok && named != f.Step:
		err = fmt.Errorf("%w: %s: is named for step %d but holds step %d", ErrDamaged, path, named, f.Step)
	}
	if err == nil {
		err = f.Meta.GetIf(finiteKey, &f.finite)
	}
	if err == nil {
		err = f.openParts(path)
	}
	if err == nil {
		err = f.join(path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	delete(f.Meta, stepKey)
	delete(f.Meta, finiteKey)
	for _, info := range f.infos {
		t, err := f.Tensor(info.Name)
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		f.Tensors = append(f.Tensors, t)
	}
	return f, nil
}

// Close closes the files.
func (f *File) Close() error {
	var errs []error
	for _, file := range f.files {
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}

// Tensor returns the tensor with that name; its data is not read yet.
func (f *File) Tensor(name string) (safetensors.Tensor, error) {
	i, ok := f.at[name]
	if !ok {
		return f.files[0].Tensor(name) // whose error names the file
	}
	info := f.infos[i]
	return safetensors.Tensor{Name: name, DType: info.DType, Shape: slices.Clone(info.Shape), Write: func(w io.Writer) error {
		for _, piece := range f.pieces[name] {
			if err := piece.Write(w); err != nil {
				return asDamage(err)
			}
		}
		return nil
	}}, nil
}

// Has reports whether there is a tensor of that name.
func (f *File) Has(name string) bool { return len(f.pieces[name]) > 0 }

// Verify reads the tensors that have not been read yet, holding little of them in memory.
// The error names all that are damaged.
func (f *File) Verify() error {
	var errs []error
	for _, file := range f.files {
		_, err := file.Verify()
		errs = append(errs, asDamage(err))
	}
	return errors.Join(errs...)
}

// Infos describes the tensors. Of one that is in several files the byte range is that of its size only.
func (f *File) Infos() []safetensors.Info { return slices.Clone(f.infos) }

// Digest returns a SHA-256 that identifies the whole content, that of the parts included.
func (f *File) Digest() string { return f.files[0].Digest() }

// Size returns the size of the files in bytes.
func (f *File) Size() (sum int64) {
	for _, file := range f.files {
		sum += file.Size()
	}
	return sum
}

// Chosen returns the step of the checkpoint that [Use] opens: step itself, or that of the newest one if it is 0.
func Chosen(dir vfs.Path, step int) (int, error) {
	entries, err := List(dir)
	if step == 0 && len(entries) > 0 {
		step = entries[len(entries)-1].Step
	}
	return step, err
}

// Use opens the checkpoint of a step in dir, or the newest one if step is 0, and passes it to use. It does not take an
// older one in place of a damaged one, which would be another model than the one that was asked for: the error names the
// newest that is intact. It is ErrNone if there are no checkpoints.
func Use(dir vfs.Path, step int, use func(*File) error) error {
	entries, err := List(dir)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		return fmt.Errorf("%w in %s", ErrNone, dir)
	}
	chosen := entries[len(entries)-1]
	if step > 0 {
		chosen = Entry{Step: step, Path: dir.Join(FileName(step))}
	}
	isDamaged, err := tryOne(chosen.Path, use)
	if !isDamaged {
		return err
	}
	err = fmt.Errorf("%s: %w", chosen.Path, err)
	for _, other := range slices.Backward(entries) {
		if other.Step == chosen.Step {
			continue
		}
		if damaged, otherErr := tryOne(other.Path, (*File).Verify); !damaged && otherErr == nil {
			return fmt.Errorf("%w; the newest intact checkpoint is of step %d: name it with --step %[2]d, or move the damaged file away", err, other.Step)
		}
	}
	return fmt.Errorf("%w; no checkpoint of the run is intact", err)
}

// Latest opens the newest checkpoint in dir and passes it to use, which reads what it needs from
// it. If the content turns out to be damaged, or is not finite, the checkpoint is passed to warn
// (unless that is nil) and left where it is, and use is called with the previous one. Where no
// intact checkpoint is finite, use is called with the newest of them. The error is ErrNone if there
// are no checkpoints, and wraps ErrDamaged if there are only damaged ones: a run must then not
// silently start from the beginning. Any other error of use is returned at once.
func Latest(dir vfs.Path, warn func(path vfs.Path, err error), use func(*File) error) error {
	entries, err := List(dir)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		return fmt.Errorf("%w in %s", ErrNone, dir)
	}
	if warn == nil {
		warn = func(vfs.Path, error) {}
	}
	var passed []Entry // which are not finite
	for _, entry := range slices.Backward(entries) {
		finite := true
		isDamaged, err := tryOne(entry.Path, func(f *File) (err error) {
			if finite, err = f.Finite(); err != nil || !finite {
				return err
			}
			return use(f)
		})
		switch {
		case isDamaged:
			warn(entry.Path, err)
		case err == nil && !finite:
			passed = append(passed, entry)
		default:
			for _, p := range passed {
				warn(p.Path, ErrNotFinite)
			}
			return err
		}
	}
	for _, entry := range passed {
		isDamaged, err := tryOne(entry.Path, use)
		if !isDamaged {
			return err
		}
		warn(entry.Path, err)
	}
	return fmt.Errorf("%w: none of the %d checkpoints in %s is intact; to begin again, move them away", ErrDamaged, len(entries), dir)
}

// tryOne uses one checkpoint and tells whether the error is due to damaged content. use may
// fail for other reasons, such as an entry that the metadata lacks.
func tryOne(path vfs.Path, use func(*File) error) (isDamaged bool, err error) {
	f, err := Open(path)
	if err != nil {
		return errors.Is(err, ErrDamaged), err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	err = use(f)
	return isContent(err), err
}

func isContent(err error) bool {
	return errors.Is(err, safetensors.ErrFormat) || errors.Is(err, safetensors.ErrChecksum)
}

func asDamage(err error) error {
	if isContent(err) {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return err
}

// No run can go on from a state whose numbers are not finite: each of its steps is NaN. So the last
// checkpoint that is finite is neither removed nor passed over, however many that are not follow
// it.

// ErrNotFinite is wrapped by the error about a checkpoint that was passed over because it is not
// finite.
var ErrNotFinite = errors.New("the state is not finite")

// finiteKey is the entry of the metadata that says whether the state is finite, as true or false.
// This is known when the tensors have been written, and must not change the length of the header.
const (
	finiteKey = "finite"
	isFinite  = "true " // JSON
	notFinite = "false"
)

// Finite reports whether the parameters, under param/, are finite and no state of an optimizer or a
// quantizer, under state/ and kept/, is NaN. Where the metadata does not say it, the tensors are
// read.
func (f *File) Finite() (bool, error) {
	if f.finite != nil {
		return *f.finite, nil
	}
	finite := true
	for _, t := range watched(f.Tensors, func() { finite = false }) {
		if limit(t) == 0 {
			continue
		}
		if err := t.Write(io.Discard); err != nil {
			return false, err
		}
	}
	f.finite = &finite
	return finite, nil
}

// watched are tensors that call found when they are written and their numbers are not finite.
func watched(list []safetensors.Tensor, found func()) []safetensors.Tensor {
	list = slices.Clone(list)
	for i, t := range list {
		if limit := limit(t); limit > 0 {
			list[i].Write = func(w io.Writer) error {
				return t.Write(io.MultiWriter(watcher{t.DType, limit, found}, w))
			}
		}
	}
	return list
}

// infinity has the bits of the number; those of NaN are larger, but for the sign.
var infinity = math.Float32bits(float32(math.Inf(1)))

// limit is the smallest number, in the bits of a float32, that a tensor must not have; 0: it may
// have any.
func limit(t safetensors.Tensor) uint32 {
	kind, _, _ := strings.Cut(t.Name, "/")
	switch {
	case t.DType != safetensors.F32 && t.DType != safetensors.BF16:
		return 0
	case kind == "param":
		return infinity
	case kind == "state" || kind == "kept": // infinity may be a bound that is not yet known
		return infinity + 1
	}
	return 0
}

// watcher looks at the numbers that are written to it.
type watcher struct {
	dtype safetensors.DType
	limit uint32
	found func()
}

func (w watcher) Write(data []byte) (int, error) {
	largest := uint32(0)
	if w.dtype == safetensors.F32 {
		for at := 0; at+4 <= len(data); at += 4 {
			largest = max(largest, binary.LittleEndian.Uint32(data[at:])<<1)
		}
	} else {
		for at := 0; at+2 <= len(data); at += 2 {
			largest = max(largest, uint32(binary.LittleEndian.Uint16(data[at:]))<<17)
		}
	}
	if largest>>1 >= w.limit {
		w.found()
	}
	return len(data), nil
}
