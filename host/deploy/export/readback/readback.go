// Package readback reads exported models and returns the numbers that their bytes stand
// for, by the rules of the formats. It was written from the descriptions of the formats
// and shares no code with what writes them (host/deploy/export, host/deploy/export/pack), so that it
// can check whether an export is what it should be.
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
