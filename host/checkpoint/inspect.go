package checkpoint

import (
	"errors"

	"github.com/cage-qat/cage/host/safetensors"
	"github.com/cage-qat/cage/internal/vfs"
)

// Info describes a checkpoint without its values.
type Info struct {
	Step    int
	Meta    Meta
	Tensors []safetensors.Info
	Digest  string // SHA-256 of the content, as its writer recorded it
	Size    int64  // of the file in bytes
}

// Inspect reads what a checkpoint says of itself. It does not read the values, so that
// damage to them goes unnoticed: see [Verify]. Its errors are those of [Load].
func Inspect(path vfs.Path) (Info, error) { return inspect(path, false) }

// Verify reads a whole checkpoint, holding little of it in memory, and checks all that
// [Load] checks. Its errors are the same.
func Verify(path vfs.Path) (Info, error) { return inspect(path, true) }

func inspect(path vfs.Path, whole bool) (info Info, err error) {
	f, err := safetensors.Open(path)
	if err != nil {
		return Info{}, readError(err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	metadata := f.Metadata()
	info = Info{Tensors: f.Tensors(), Digest: metadata[safetensors.DigestKey]}
	if whole {
		if _, err := f.Verify(); err != nil {
			return Info{}, readError(err)
		}
	}
	if info.Step, err = stepIn(path, metadata); err != nil {
		return Info{}, err
	}
	info.Meta = ownMeta(metadata)
	stat, err := path.Stat()
	if err != nil {
		return Info{}, err
	}
	info.Size = stat.Size()
	return info, nil
}
