package provenance

import (
	"fmt"
	"math"
	"path/filepath"

	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/vfs"
	"github.com/cage-qat/cage/sdk"
)

// Origin describes the run or checkpoint from which weights were read.
type Origin struct {
	Path string `json:"path"`           // absolute
	Run  string `json:"run,omitempty"`  // identity of the run; empty for a Hugging Face checkpoint
	Step int    `json:"step,omitempty"` // optimizer steps completed in the run
	// Files lists the files read. The digest of a run's checkpoint is the one stored in it.
	Files []huggingface.Part `json:"files"`
	// End lists the EOS tokens declared by the Hugging Face checkpoint from which the weights
	// originally come.
	End []int32 `json:"end,omitempty"`
	// Stored tells of each type in few bits how many matrices of the original had it, and which
	// quantizer of weights has the same grid, if one has.
	Stored []string `json:"stored,omitempty"`
}

// Ends returns the EOS tokens; nil if they are unknown, or if weights were randomly initialized.
func (o *Origin) Ends() []int32 {
	if o == nil {
		return nil
	}
	return o.End
}

// Digests returns the SHA-256 hashes of the files from which weights were read.
func (o *Origin) Digests() []string {
	return lists.Map(o.Files, func(f huggingface.Part) string { return f.SHA256 })
}

// String returns the path and, if it is a run, the step.
func (o *Origin) String() string {
	if o.Run != "" {
		return fmt.Sprintf("%s, step %d", o.Path, o.Step)
	}
	return o.Path
}

// LoadRun calls use with the weights of the newest checkpoint of a run, and returns their origin.
func LoadRun(dir rundir.Dir, use func(step.LoadFunc) error) (*Origin, error) {
	made, err := Read(dir)
	if err != nil {
		return nil, err
	}
	from := &Origin{Run: made.Run, End: made.Initial.Ends()}
	if from.Path, err = filepath.Abs(dir.Name); err != nil {
		return nil, err
	}
	err = checkpoint.Use(dir.Checkpoints(), 0, func(f *checkpoint.File) error {
		if err := made.CheckOwner(dir, f.Step, f.Meta); err != nil {
			return err
		}
		from.Step = f.Step
		file := filepath.Join(dir.Checkpoints().Base(), checkpoint.FileName(f.Step))
		from.Files = []huggingface.Part{{File: file, SHA256: f.Digest()}}
		return UseWeights(dir, made, f, use)
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	if made.Initial != nil && from.Step == 0 {
		from.Stored = made.Initial.Stored
	}
	return from, nil
}

// HubOrigin returns the origin of weights from a Hugging Face checkpoint that has been read.
func HubOrigin(dir vfs.Path, c *huggingface.Checkpoint) (*Origin, error) {
	path, err := filepath.Abs(dir.Name)
	if err != nil {
		return nil, err
	}
	files, err := c.Parts()
	return &Origin{Path: path, Files: files, End: c.Config.Tokens.End, Stored: c.Stored}, err
}

// evaluated is like [Tensors], for a model that is used but not trained further: for a parameter it
// returns the values used in evaluation, if the optimizer or train.average computed such values.
func evaluated(f *checkpoint.File) step.LoadFunc {
	load := Tensors(f)
	return func(name string) (step.Tensor, error) {
		for _, other := range step.EvaluationNames(name) {
			if f.Has(other) {
				t, err := load(other)
				t.Name = name
				return t, err
			}
		}
		return load(name)
	}
}

// Tensors returns a function that reads a tensor of a checkpoint by name.
func Tensors(f *checkpoint.File) step.LoadFunc {
	return func(name string) (step.Tensor, error) {
		t, err := f.Tensor(name)
		if err != nil {
			return step.Tensor{}, err
		}
		values, err := Floats(t)
		return step.Tensor{Name: name, Dims: t.Shape, Data: values}, err
	}
}

// Floats decodes a tensor that [Stored] has encoded.
func Floats(t safetensors.Tensor) ([]float32, error) {
	switch t.DType {
	case safetensors.I8:
		return widened[int8](t, func(v int8) float32 { return float32(v) })
	case safetensors.U8:
		return widened[uint8](t, func(v uint8) float32 { return float32(v) })
	case safetensors.BF16:
		t.DType = safetensors.U16 // read as bits
		return widened[uint16](t, func(v uint16) float32 { return math.Float32frombits(uint32(v) << 16) })
	}
	return safetensors.Values[float32](t)
}

func widened[T safetensors.Element](t safetensors.Tensor,
	float func(T) float32) ([]float32, error) {
	values, err := safetensors.Values[T](t)
	return lists.Map(values, float), err
}

// Stored encodes a state tensor for a checkpoint, in the storage type that the state declares.
func Stored(t step.Stored) safetensors.Tensor {
	switch t.Storage {
	case sdk.StoreInt8:
		return narrowed(t, func(v float32) int8 { return int8(v) })
	case sdk.StoreUint8:
		return narrowed(t, func(v float32) uint8 { return uint8(v) })
	case sdk.StoreBFloat16:
		bits := narrowed(t, func(v float32) uint16 { return uint16(math.Float32bits(v) >> 16) })
		bits.DType = safetensors.BF16
		return bits
	}
	return safetensors.Lazy(t.Name, t.Dims, t.Read)
}

func narrowed[T safetensors.Element](t step.Stored, element func(float32) T) safetensors.Tensor {
	return safetensors.Lazy(t.Name, t.Dims, func() ([]T, error) {
		values, err := t.Read()
		return lists.Map(values, element), err
	})
}
