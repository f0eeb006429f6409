package export

import (
	"cmp"
	"fmt"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/model/lora"
	"github.com/cage-qat/cage/sdk/spec"
)

// Model is a trained model as this package needs it.
type Model struct {
	Settings architecture.Settings
	Params   []architecture.Param
	// Latent returns the elements of the parameter before quantization.
	Latent func(param string) ([]float32, error)
	// Quantized returns the output of the parameter's quantizer, or nil if the parameter is not
	// quantized.
	Quantized func(param string) (*Quantized, error)
	// Activation returns the quantizer of the inputs of a weight's layer, or nil if they are not
	// quantized. If the function is nil, no activations are.
	Activation func(param string) (*Activation, error)
	// Warnings lists properties of the model that no format stores, and Notes lists differences
	// between its weights and the trained ones.
	Warnings, Notes []string

	// Adapters lists the adapters that a run trained, by its LoRA, whose factors Latent returns, too,
	// and Base is the repository of the model that they are for; "": not known.
	Adapters []lora.Adapter
	LoRA     lora.Settings
	Base     string

	Tokenizer Tokenizer
	// Description describes the checkpoint from which the model was initialized, with the changes
	// made by training. If it has no config.json, one is generated.
	Description huggingface.Description
	Positions   int // largest number of tokens in a sequence; 0: the context of Settings
	OtherWindow int // see [huggingface.Config]
	Card        Card
}

func (m *Model) describe() (huggingface.Description, error) {
	if m.Description.Config != nil {
		return m.Description, nil
	}
	tokens := huggingface.Tokens{End: m.Tokenizer.EOS}
	if id := m.Tokenizer.BOS; id >= 0 {
		tokens.Begin = []int32{id}
	}
	if id := m.Tokenizer.Pad; id >= 0 {
		tokens.Pad = []int32{id}
	}
	c := huggingface.Config{Settings: m.Settings, MaxPositions: m.Settings.Context, Tokens: tokens}
	return c.Describe()
}

// Quantized is a weight x as returned by its quantizer's program.
type Quantized struct {
	Value      []float32 // Q(x)
	Codes      []int32   // nil if unknown
	Scale      []float32 // nil if there is none
	ScaleShape []int
	Rotation   int // block size of the rotation for codes and scale; 0: none
	// Grid is the quantizer's declaration of its codes and scales; zero if there is none.
	Grid spec.Grid
	// Settings identifies the quantizer and its settings: weights with equal Settings are stored in
	// the same type.
	Settings string
}

// part is a tensor of the target layout.
type part = huggingface.Mapping

// pick copies the rows of the part from values, which holds all rows of the parameter.
func pick[T any](p part, values []T) []T {
	columns := len(values) / p.Param.Dims[0]
	out := make([]T, 0, len(p.Rows)*columns)
	for _, r := range p.Rows {
		out = append(out, values[r*columns:][:cmp.Or(p.Columns, columns)]...)
	}
	return out
}

// source reads the weights of a model. It caches the last few, since the parts of one weight are
// requested one after another.
type source struct {
	*Model
	latent bool // read quantized weights without quantization
	grids  bool // make the grids of quantized weights
	cached []weight
}

type weight struct {
	param     string
	values    []float32
	quantized bool
	settings  string // see Quantized
	grid      *Grid  // nil if there is none
	gridErr   error  // why there is none
}

func (s *source) weight(p architecture.Param) (weight, error) {
	for _, w := range s.cached {
		if w.param == p.Name {
			return w, nil
		}
	}
	w, err := s.read(p)
	if err != nil {
		return w, fmt.Errorf("%s: %w", p.Name, err)
	}
	s.cached = append(s.cached, w)
	s.cached = s.cached[max(0, len(s.cached)-2):]
	return w, nil
}

func (s *source) read(p architecture.Param) (w weight, err error) {
	w.param = p.Name
	if !s.latent {
		q, err := s.Quantized(p.Name)
		if err != nil {
			return w, err
		}
		if q != nil {
			w.values, w.quantized, w.settings = q.Value, true, q.Settings
			if s.grids {
				w.grid, w.gridErr = NewGrid(q, p.Dims)
			}
		}
	}
	if w.values == nil {
		if w.values, err = s.Latent(p.Name); err != nil {
			return w, err
		}
	}
	if len(w.values) != p.Size() {
		return w, fmt.Errorf("got %d values for shape %v", len(w.values), p.Dims)
	}
	bad := 0
	for _, v := range w.values {
		if v-v != 0 {
			bad++
		}
	}
	if bad > 0 {
		return w, fmt.Errorf("%d of %d values are NaN or infinite: the model cannot be used",
			bad, len(w.values))
	}
	return w, nil
}
