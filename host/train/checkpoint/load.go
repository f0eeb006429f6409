package checkpoint

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/vfs"
	"github.com/cage-qat/cage/sdk/program"
)

// File is an open checkpoint with a verified header. Its tensors are verified when they are read.
type File struct {
	State
	path  vfs.Path
	files []*safetensors.File // its own, then its parts
	// Parts are the files besides the main file; none if one process wrote the checkpoint.
	Parts []Part

	infos  []safetensors.Info // of whole tensors
	at     map[string]int     // index of a tensor in infos and Tensors, by name
	finite *bool              // nil: not known yet

	damaged atomic.Bool // whether damage was found in a tensor; tensors may be read concurrently
}

// Open opens a checkpoint. Errors of Open, of the File's methods and of its tensors wrap ErrDamaged
// if the content is damaged, but not if the file cannot be read.
func Open(path vfs.Path) (*File, error) {
	file, err := safetensors.Open(path)
	if isContent(err) {
		return nil, asDamage(err)
	}
	if err != nil {
		return nil, fmt.Errorf("load checkpoint: %w", err)
	}
	f := &File{path: path, files: []*safetensors.File{file}, State: State{Meta: file.Metadata()}}
	f.Step, err = strconv.Atoi(f.Meta[stepKey])
	switch named, ok := stepOf(path.Base()); {
	case f.Digest() == "":
		err = fmt.Errorf("%w: %s: has no %s, which is needed to verify it",
			ErrDamaged, path, safetensors.HeaderDigestKey)
	case err != nil || f.Step < 0:
		err = fmt.Errorf("%w: %s: metadata has step %q, want a non-negative integer",
			ErrDamaged, path, f.Meta[stepKey])
	case ok && named != f.Step:
		err = fmt.Errorf("%w: %s: is named for step %d but holds step %d",
			ErrDamaged, path, named, f.Step)
	}
	if err == nil {
		err = f.Meta.GetIf(finiteKey, &f.finite)
	}
	if err == nil {
		err = f.openParts()
	}
	if err == nil {
		err = f.join()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	delete(f.Meta, stepKey)
	delete(f.Meta, finiteKey)
	return f, nil
}

// Close closes the checkpoint's files.
func (f *File) Close() error {
	return errors.Join(lists.Map(f.files, (*safetensors.File).Close)...)
}

// Tensor returns the named tensor without reading its data.
func (f *File) Tensor(name string) (safetensors.Tensor, error) {
	if i, ok := f.at[name]; ok {
		return f.Tensors[i], nil
	}
	return f.files[0].Tensor(name) // fails with an error that names the file
}

// Has reports whether the checkpoint has a tensor with the given name.
func (f *File) Has(name string) bool {
	_, ok := f.at[name]
	return ok
}

// Verify reads and verifies the tensors that have not been read yet. Its error names all damaged
// ones.
func (f *File) Verify() error {
	var errs []error
	for _, file := range f.files {
		_, err := file.Verify()
		errs = append(errs, f.noteDamage(err))
	}
	return errors.Join(errs...)
}

// Infos describes the tensors. The byte range of a tensor in several files is [0, total size).
func (f *File) Infos() []safetensors.Info { return slices.Clone(f.infos) }

// Digest returns a SHA-256 that identifies the content of all files.
func (f *File) Digest() string { return f.files[0].Digest() }

// Size returns the total size of the files in bytes.
func (f *File) Size() (sum int64) {
	for _, file := range f.files {
		sum += file.Size()
	}
	return sum
}

// OpenStep opens the given step's checkpoint in dir or, if step is 0, the newest one. It stays
// readable if a training removes it. If it is damaged, the error names the newest intact one. The
// error wraps ErrNone if dir has no checkpoint.
func OpenStep(dir vfs.Path, step int) (*File, error) {
	for {
		entries, err := List(dir)
		if err != nil {
			return nil, err
		}
		if len(entries) == 0 {
			return nil, fmt.Errorf("%w in %s", ErrNone, dir)
		}
		at := len(entries) - 1
		if step > 0 {
			at = slices.IndexFunc(entries, func(e Entry) bool { return e.Step == step })
		}
		if at < 0 {
			return nil, fmt.Errorf("%s has no checkpoint of step %d: the steps are %v",
				dir, step, Steps(entries))
		}
		f, err := Open(entries[at].Path)
		if err == nil {
			return f, nil
		}
		if _, gone := entries[at].Path.Lstat(); !errors.Is(gone, fs.ErrNotExist) {
			return nil, adviseIf(errors.Is(err, ErrDamaged), entries[at].Path, err)
		} // else a training has removed it, after it had saved a newer one
	}
}

// Use calls use with the checkpoint of [OpenStep].
func Use(dir vfs.Path, step int, use func(*File) error) error {
	f, err := OpenStep(dir, step)
	if err != nil {
		return err
	}
	return errors.Join(f.Use(use), f.Close())
}

// Use calls use with the checkpoint. If it is damaged, the error names the newest intact one.
func (f *File) Use(use func(*File) error) error {
	err := use(f)
	return adviseIf(err != nil && f.damaged.Load(), f.path, err)
}

func adviseIf(damaged bool, path vfs.Path, err error) error {
	if !damaged {
		return err
	}
	err = fmt.Errorf("%s: %w", path, err)
	entries, _ := List(path.Dir())
	for _, other := range slices.Backward(entries) {
		if other.Path == path {
			continue
		}
		if damaged, otherErr := tryOne(other.Path, (*File).Verify); !damaged && otherErr == nil {
			return fmt.Errorf("%w; the newest intact checkpoint is of step %d: "+
				"name it with --step %[2]d, or move the damaged file away", err, other.Step)
		}
	}
	return fmt.Errorf("%w; no checkpoint of the run is intact", err)
}

// Latest calls use with the newest checkpoint in dir that is intact and finite or, if none is
// finite, with the newest intact one. It calls warn, unless that is nil, for each checkpoint that
// was skipped. The error wraps ErrNone if there are no checkpoints, and ErrDamaged if all of them
// are damaged, in which case a run must not start from scratch.
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
	var passed []Entry  // skipped, because they are not finite
	var damages []error // one per damaged checkpoint
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
			damages = append(damages, err)
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
		damages = append(damages, err)
		warn(entry.Path, err)
	}
	return fmt.Errorf("%w: none of the %d checkpoints in %s is intact; move them away to start over; "+
		"the damage is:\n%w", ErrDamaged, len(entries), dir, errors.Join(damages...))
}

// tryOne calls use with a checkpoint and reports whether the error is due to damage to its files.
// Damage to other files that use reads, such as those of the initial model, does not count.
func tryOne(path vfs.Path, use func(*File) error) (isDamaged bool, err error) {
	f, err := Open(path)
	if err != nil {
		return errors.Is(err, ErrDamaged), err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	err = use(f)
	return err != nil && f.damaged.Load(), err
}

func isContent(err error) bool {
	return errors.Is(err, safetensors.ErrFormat) || errors.Is(err, safetensors.ErrChecksum)
}

// noteDamage is asDamage for an error of reading the checkpoint's own tensors.
func (f *File) noteDamage(err error) error {
	if isContent(err) {
		f.damaged.Store(true)
	}
	return asDamage(err)
}

func asDamage(err error) error {
	if isContent(err) {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return err
}

// A run cannot resume from a state that is not finite, because all later values would be NaN. So
// the newest finite checkpoint is neither removed nor skipped, no matter how many others follow it.

// ErrNotFinite is reported for checkpoints that are skipped because of NaN or infinite values.
var ErrNotFinite = errors.New("the state is not finite")

// finiteKey is the metadata key that records whether the state is finite. The value is only known
// after the tensors have been written, so both values have the same length.
const (
	finiteKey = "finite"
	isFinite  = "true " // JSON
	notFinite = "false"
)

// Finite reports whether all parameters (param/) are finite and no states of optimizers (state/) or
// quantizers (kept/) are NaN. It reads the tensors if the metadata does not record this.
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

// watched wraps tensors so that writing them calls found if they are not finite.
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

// infinity is the bit pattern of +Inf. The patterns of NaN, without the sign bit, are larger.
var infinity = math.Float32bits(float32(math.Inf(1)))

// limit returns the smallest float32 bit pattern, without the sign bit, that counts as not finite
// in a tensor; 0 if the tensor is not checked.
func limit(t safetensors.Tensor) uint32 {
	if t.DType != safetensors.F32 && t.DType != safetensors.BF16 {
		return 0
	}
	kind, _, _ := strings.Cut(t.Name, "/")
	switch program.Kind(kind) {
	case program.KindParam:
		return infinity
	case program.KindState, program.KindQuantizerState: // infinity is a bound not yet known
		return infinity + 1
	}
	return 0
}

// watcher is a writer that calls found if the bit pattern of a number reaches limit.
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

// join lists the tensors, each of which consists of its pieces in the files.
func (f *File) join() error {
	pieces := map[string][]safetensors.Tensor{}
	f.at = map[string]int{}
	for _, file := range f.files {
		for _, info := range file.Tensors() {
			piece, err := file.Tensor(info.Name)
			if err != nil {
				return err
			}
			pieces[info.Name] = append(pieces[info.Name], piece)
			i, begun := f.at[info.Name]
			if !begun {
				f.at[info.Name] = len(f.infos)
				f.infos = append(f.infos, info)
				continue
			}
			whole := &f.infos[i]
			rank := len(whole.Shape)
			if whole.DType != info.DType || rank == 0 || len(info.Shape) != rank ||
				!slices.Equal(whole.Shape[1:], info.Shape[1:]) ||
				info.Shape[0] > math.MaxInt-whole.Shape[0] {
				return fmt.Errorf("%w: %s: tensor %q is %s %v, but its rows in a part are %s %v",
					ErrDamaged, f.path, info.Name, whole.DType, whole.Shape, info.DType, info.Shape)
			}
			whole.Shape = slices.Clone(whole.Shape)
			whole.Shape[0] += info.Shape[0]
			whole.Begin, whole.End = 0, whole.End-whole.Begin+info.End-info.Begin // not a range of a file
		}
	}
	if len(f.Parts) > 0 { // the order of a checkpoint that is one file
		slices.SortFunc(f.infos, func(a, b safetensors.Info) int {
			return cmp.Or(cmp.Compare(b.DType.Bits(), a.DType.Bits()), cmp.Compare(a.Name, b.Name))
		})
	}
	for i, info := range f.infos {
		f.at[info.Name] = i
		write := func(w io.Writer) error {
			for _, piece := range pieces[info.Name] {
				if err := piece.Write(w); err != nil {
					return f.noteDamage(err)
				}
			}
			return nil
		}
		f.Tensors = append(f.Tensors, safetensors.Tensor{
			Name: info.Name, DType: info.DType, Shape: slices.Clone(info.Shape), Write: write})
	}
	return nil
}
