package export

import (
	"fmt"
	"slices"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/sdk/spec"
)

// Model is a trained model as package export needs it.
type Model struct {
	Settings architecture.Settings
	Params   []architecture.Param
	// Latent returns the elements of a parameter as the optimizer keeps them.
	Latent func(param string) ([]float32, error)
	// Quantized returns what the quantizer makes of a parameter; nil if the parameter is
	// not quantized.
	Quantized func(param string) (*Quantized, error)
	// Activations lists the inputs of layers that are quantized.
	Activations func() ([]Activation, error)
	// Warnings say what else the model does that no format stores, Notes how its weights differ
	// from those that were trained.
	Warnings, Notes []string

	Tokenizer Tokenizer
	// Description is that of the checkpoint that the model was made from, with what training has
	// changed; without a config.json it is made anew.
	Description huggingface.Description
	Positions   int // largest number of tokens in a sequence; 0: the context of Settings
	Window      int // number of tokens that attention looks back; 0: all
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
	Codes      []int32   // nil if they are not known
	Scale      []float32 // nil if there is none
	ScaleShape []int
	Rotation   int // block size of the rotation that codes and scale belong to; 0: none
	// Grid is what the quantizer declares that codes and scale stand for; the zero Grid: nothing.
	Grid spec.Grid
	// Settings tells weights that other quantizers, or other settings, have made apart: all with
	// the same are stored in the same type.
	Settings string
}

// part is a tensor of the foreign layout: some rows of a parameter, in some order.
type part struct {
	name  string // in the foreign layout
	param architecture.Param
	rows  []int // of the parameter
}

func (p part) shape() []int {
	shape := slices.Clone(p.param.Dims)
	shape[0] = len(p.rows)
	return shape
}

// partsOf lists the tensors of a model as Hugging Face names and orders them.
func partsOf(m *Model) (list []part, err error) {
	places, err := huggingface.Layout(m.Settings)
	for _, place := range places {
		list = append(list, part{place.Tensor, place.Param, place.Rows})
	}
	return list, err
}

// columns is the length of a row, 1 for a vector.
func (p part) columns() int { return p.param.Size() / p.param.Dims[0] }

// pick copies the rows of the part out of values that has all rows of the parameter.
func pick[T any](p part, values []T, columns int) []T {
	out := make([]T, 0, len(p.rows)*columns)
	for _, r := range p.rows {
		out = append(out, values[r*columns:(r+1)*columns]...)
	}
	return out
}

// source gives the weights of a model. It remembers the last few, since the parts of one
// weight follow each other.
type source struct {
	*Model
	latent bool // quantized weights are taken as the optimizer keeps them
	cached []weight
}

type weight struct {
	param     string
	values    []float32
	quantized bool
	settings  string // see Quantized
	grid      *Grid  // nil where there is none
	noGrid    error  // why there is none
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
			w.grid, w.noGrid = NewGrid(q, p.Dims)
		}
	}
	if w.values == nil {
		if w.values, err = s.Latent(p.Name); err != nil {
			return w, err
		}
	}
	if len(w.values) != p.Size() {
		return w, fmt.Errorf("%d values for the shape %v", len(w.values), p.Dims)
	}
	bad := 0
	for _, v := range w.values {
		if v-v != 0 {
			bad++
		}
	}
	if bad > 0 {
		return w, fmt.Errorf("%d of %d values are NaN or infinite: there is nothing to serve", bad, len(w.values))
	}
	return w, nil
}
