package provenance

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"

	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/vfs"
	"github.com/cage-qat/cage/sdk"
)

// Origin is what weights were read from.
type Origin struct {
	Path string `json:"path"`           // absolute
	Run  string `json:"run,omitempty"`  // identity, if it is a run of cage
	Step int    `json:"step,omitempty"` // optimizer steps behind it
	// Files are the files that were read. For the checkpoint of a run, the digest is the one stored in it.
	Files []huggingface.Part `json:"files"`
	// End lists the tokens that end a text, as stated by the Hugging Face checkpoint from which the weights originally
	// come.
	End []int32 `json:"end,omitempty"`
}

// Ends are the tokens that end a text; nil where that is not known, or where weights were drawn.
func (o *Origin) Ends() []int32 {
	if o == nil {
		return nil
	}
	return o.End
}

// Digests are those of the files that weights were read from.
func (o *Origin) Digests() (list []string) {
	for _, f := range o.Files {
		list = append(list, f.SHA256)
	}
	return list
}

// String says what weights are.
func (o *Origin) String() string {
	if o.Run != "" {
		return fmt.Sprintf("%s, step %d", o.Path, o.Step)
	}
	return o.Path
}

// LoadRun loads the newest checkpoint of a run.
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
		from.Files = []huggingface.Part{{File: filepath.Join(dir.Checkpoints().Base(), checkpoint.FileName(f.Step)), SHA256: f.Digest()}}
		return use(Evaluated(f))
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return from, nil
}

// LoadHub loads a Hugging Face checkpoint as a model of these settings.
func LoadHub(dir vfs.Path, s architecture.Settings, m model.Model, use func(step.LoadFunc) error) (from *Origin, err error) {
	c, err := huggingface.Open(dir, huggingface.Options{Context: s.Context, Pairs: s.RopePairs})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := use(step.LoadParams(m, c.Values)); err != nil {
		return nil, err
	}
	if err := c.Err(); err != nil { // before the files are read once more
		return nil, err
	}
	return HubOrigin(dir, c)
}

// HubOrigin describes a checkpoint that was read.
func HubOrigin(dir vfs.Path, c *huggingface.Checkpoint) (*Origin, error) {
	path, err := filepath.Abs(dir.Name)
	if err != nil {
		return nil, err
	}
	files, err := c.Parts()
	return &Origin{Path: path, Files: files, End: c.Config.Tokens.End}, err
}

// Evaluated is [Tensors] for a model that is used and not trained on: in place of what was trained
// it reads what the run was evaluated with, where its optimizer gives that or train.average.
func Evaluated(f *checkpoint.File) step.LoadFunc {
	load := Tensors(f)
	return func(name string) (step.Tensor, error) {
		for _, given := range []string{step.EvaluatedName(name), step.AverageName(name)} {
			if f.Has(given) {
				t, err := load(given)
				t.Name = name
				return t, err
			}
		}
		return load(name)
	}
}

// Tensors reads the tensors of a checkpoint by name.
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

// Floats reads a tensor that [Stored] has made.
func Floats(t safetensors.Tensor) ([]float32, error) {
	switch t.DType {
	case safetensors.I8:
		return widened[int8](t, func(v int8) float32 { return float32(v) })
	case safetensors.U8:
		return widened[uint8](t, func(v uint8) float32 { return float32(v) })
	case safetensors.BF16:
		t.DType = safetensors.U16 // its bits
		return widened[uint16](t, func(v uint16) float32 { return math.Float32frombits(uint32(v) << 16) })
	}
	return safetensors.Values[float32](t)
}

func widened[T safetensors.Element](t safetensors.Tensor, float func(T) float32) ([]float32, error) {
	values, err := safetensors.Values[T](t)
	out := make([]float32, len(values))
	for i, v := range values {
		out[i] = float(v)
	}
	return out, err
}

// Stored is a tensor of a state as a checkpoint has it: in the type that the state has it in.
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
		out := make([]T, len(values))
		for i, v := range values {
			out[i] = element(v)
		}
		return out, err
	})
}
