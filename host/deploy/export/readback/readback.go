package readback

import (
	"errors"
	"fmt"

	"github.com/cage-qat/cage/host/model/gguf"
	"github.com/cage-qat/cage/internal/vfs"
)

// Each is called with the numbers of each tensor.
type Each func(name string, values []float32) error

// GGUF reads all tensors of a GGUF file.
func GGUF(path vfs.Path, each Each) (err error) {
	f, err := gguf.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for _, t := range f.Tensors() {
		values, err := f.Values(t)
		if err == nil {
			err = each(t.Name, values)
		}
		if err != nil {
			return fmt.Errorf("%s: tensor %s: %w", path, t.Name, err)
		}
	}
	return nil
}
