package export

import (
	"errors"
	"fmt"

	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/vfs"
)

// readDirectory reads all weights of a Hugging Face directory, plain or in a layout of
// compressed-tensors or MLX. It calls each with the names that the weights have without
// quantization.
func readDirectory(dir vfs.Path, each func(name string, values []float32) error) (err error) {
	tensors, err := huggingface.OpenTensors(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tensors.Close()) }()
	return readTensors(dir, tensors, each)
}

// readTensors reads all tensors of the file or directory at path.
func readTensors(path vfs.Path, tensors huggingface.Tensors,
	each func(name string, values []float32) error) error {
	for _, info := range tensors.Tensors() {
		t, err := tensors.Tensor(info.Name)
		var values []float32
		if err == nil {
			values, err = safetensors.Floats(t)
		}
		if err == nil {
			err = each(info.Name, values)
		}
		if err != nil {
			return fmt.Errorf("%s: tensor %s: %w", path, info.Name, err)
		}
	}
	return nil
}
