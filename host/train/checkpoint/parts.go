package checkpoint

import (
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"

	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/vfs"
)

// If the rows of tensors are sharded over processes, each process concurrently writes its shards to
// a part: a safetensors file beside the checkpoint. When all parts are on disk, one process saves
// the main file, whose metadata lists the parts with their digests. So a checkpoint only appears
// once it is complete, and a part that no checkpoint lists is left from an interrupted save. A
// tensor is the concatenation of its rows in the main file and in the parts, in order.

// partsKey is the metadata key of the list of parts.
const partsKey = "parts"

// Part is one of the files of a checkpoint besides its main file.
type Part struct {
	File   string `json:"file"`   // name in the same directory
	SHA256 string `json:"sha256"` // its header_sha256, which identifies its whole content
}

// partName matches the names of parts. Its groups are the step, the part's number and the number of
// parts.
var partName = regexp.MustCompile(`^step-(\d{8,})\.part-(\d+)-of-(\d+)\.[0-9a-f]{8}\.safetensors$`)

// PartName returns the file name of a part, whose number is from 1 to count. mark must differ for
// each attempt to save, so that a new part never overwrites one that a checkpoint needs.
func PartName(step, number, count int, mark uint32) string {
	return fmt.Sprintf("%s%08d.part-%d-of-%d.%08x%s",
		namePrefix, step, number, count, mark, nameSuffix)
}

func partStep(name string) (step int, ok bool) {
	m := partName.FindStringSubmatch(name)
	if m == nil {
		return 0, false
	}
	return stepOf(namePrefix + m[1] + nameSuffix)
}

func listParts(dir vfs.Path) ([]Entry, error) { return list(dir, partStep) }

// SavePart is like [Save] but writes one part, with shards of tensors, under the given name.
func SavePart(ctx context.Context, dir vfs.Path, name string, tensors []safetensors.Tensor) error {
	step, ok := partStep(name)
	if !ok {
		return fmt.Errorf("save part of a checkpoint: invalid part name %q", name)
	}
	if err := dir.MkdirAll(); err != nil {
		return fmt.Errorf("save part of a checkpoint: %w", err)
	}
	metadata := map[string]string{stepKey: strconv.Itoa(step), finiteKey: isFinite}
	if err := writeWatched(ctx, dir.Join(name), tensors, metadata); err != nil {
		return fmt.Errorf("save part of a checkpoint: %w", err)
	}
	return nil
}

func describeParts(metadata map[string]string, dir vfs.Path, names []string) error {
	parts := make([]Part, len(names))
	for i, name := range names {
		f, err := safetensors.Open(dir.Join(name))
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("part %s is missing: all processes must write to the same shared directory",
				dir.Join(name))
		}
		if err != nil {
			return err
		}
		parts[i] = Part{name, f.Digest()}
		if f.Metadata()[finiteKey] == notFinite {
			metadata[finiteKey] = notFinite
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	text, err := json.Marshal(parts)
	metadata[partsKey] = string(text)
	return err
}

func (f *File) partNames() []string {
	return lists.Map(f.Parts, func(p Part) string { return p.File })
}

func (f *File) openParts() error {
	if err := f.Meta.GetIf(partsKey, &f.Parts); err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	if _, listed := f.Meta[partsKey]; listed && len(f.Parts) == 0 {
		return fmt.Errorf("%w: %s: the list of parts is empty", ErrDamaged, f.path)
	}
	delete(f.Meta, partsKey)
	for i, p := range f.Parts {
		damaged := func(format string, args ...any) error {
			what := fmt.Sprintf(format, args...)
			return fmt.Errorf("%w: %s: its part %q %s", ErrDamaged, f.path, p.File, what)
		}
		if step, ok := partStep(p.File); !ok || step != f.Step {
			return damaged("does not have the name of a part of step %d", f.Step)
		}
		m := partName.FindStringSubmatch(p.File)
		if m[2] != strconv.Itoa(i+1) || m[3] != strconv.Itoa(len(f.Parts)) {
			return damaged("is number %d of %d in the list of parts, which is incomplete", i+1, len(f.Parts))
		}
		file, err := safetensors.Open(f.path.Dir().Join(p.File))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return damaged("is missing")
		case isContent(err):
			return fmt.Errorf("%s: %w", f.path, asDamage(err))
		case err != nil:
			return fmt.Errorf("load checkpoint: %w", err)
		}
		f.files = append(f.files, file)
		if file.Digest() != p.SHA256 {
			return damaged("is another file: its digest is %q, want %q", file.Digest(), p.SHA256)
		}
	}
	return nil
}
