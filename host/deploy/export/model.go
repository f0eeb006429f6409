package export

import (
	"fmt"
	"slices"
	"strings"

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
	// Activations lists the inputs of layers that are quantized; nil means none.
	Activations func() ([]Activation, error)
	// Warnings say what else the model does that no format stores, Notes how its weights differ from
	// those that were trained.
	Warnings, Notes []string

	Tokenizer Tokenizer
	// Description is that of the checkpoint that the model was made from, with what training has changed; without a
	// config.json it is made anew.
	Description huggingface.Description
	Positions   int // largest number of tokens in a sequence; 0: the context of Settings
	Window      int // number of tokens that attention looks back; 0: all
	Card        Card
}

func (m *Model) describe() (huggingface.Description, error) {
	if m.Description.Config != nil {
		return m.Description, nil
	}
	t := m.Tokenizer
	c := huggingface.Config{Settings: m.Settings, MaxPositions: m.Settings.Context,
		Tokens: huggingface.Tokens{Begin: idList(t.BOS), End: t.EOS, Pad: idList(t.Pad)}}
	return c.Describe()
}

func idList(id int32) []int32 {
	if id < 0 {
		return nil
	}
	return []int32{id}
}

// Quantized is a weight x as returned by its quantizer's program.
type Quantized struct {
	Value      []float32 // Q(x)
	Codes      []int32   // nil if they are not known
	Scale      []float32 // nil if there is none
	ScaleShape []int
	Rotation   int // block size of the rotation that codes and scale belong to; 0: none
	// Grid is what the quantizer says that codes and scale stand for; the zero Grid: nothing.
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
	latent  bool // quantized weights are taken as the optimizer keeps them
	cached  []weight
	numbers map[string]spec.Grid // of quantizers that do not say so, by their settings
}

type weight struct {
	param     string
	values    []float32
	quantized bool
	settings  string // see Quantized
	grid      *Grid  // nil where there is none
	noGrid    error  // why there is none
}

const rememberedWeights = 2

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
	if len(s.cached) > rememberedWeights {
		s.cached = s.cached[1:]
	}
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
			if err := s.findGrid(&w, q, p.Dims); err != nil {
				return w, err
			}
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
	return w, checkFinite(w.values)
}

func (s *source) findGrid(w *weight, q *Quantized, dims []int) (err error) {
	if q.Grid != (spec.Grid{}) {
		w.grid, w.noGrid = NewGrid(q, dims, q.Grid)
		return nil
	}
	numbers, ok := s.numbers[q.Settings]
	if !ok && q.Rotation <= 1 {
		like := func(each func(*Quantized, []int)) error { return s.eachLike(q, each) }
		if numbers, err = numbersOf(like); err != nil {
			return err
		}
		if s.numbers == nil {
			s.numbers = map[string]spec.Grid{}
		}
		s.numbers[q.Settings] = numbers
	}
	if numbers == (spec.Grid{}) {
		numbers, _ = numbersOf(func(each func(*Quantized, []int)) error {
			each(q, dims)
			return nil
		})
	}
	if numbers == (spec.Grid{}) {
		numbers = anyInteger // which fails, with the reason
	}
	w.grid, w.noGrid = NewGrid(q, dims, numbers)
	return nil
}

// eachLike calls each with the weights that have the settings of q and whose quantizer does not
// say what its codes stand for.
func (s *source) eachLike(q *Quantized, each func(*Quantized, []int)) error {
	for _, p := range s.Params {
		other, err := s.Quantized(p.Name)
		if err != nil {
			return err
		}
		if other != nil && other.Settings == q.Settings && other.Grid == q.Grid {
			each(other, p.Dims)
		}
	}
	return nil
}

func checkFinite(values []float32) error {
	bad := 0
	for _, v := range values {
		if v-v != 0 {
			bad++
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d values are NaN or infinite: there is nothing to serve", bad, len(values))
	}
	return nil
}

// layout says where a foreign format keeps the parameters of a kind of models.
type layout struct {
	// names has the foreign name by that of the parameter, or of a part of it. A * stands
	// for the number of a block.
	names map[string]string
	// pairs is the order of the features that rotary positions turn.
	pairs architecture.Pairing
}

// parts lists the tensors of the foreign layout, in the order of the parameters.
func (l layout) parts(s architecture.Settings, params []architecture.Param) ([]part, error) {
	var list []part
	for _, p := range params {
		at := 0
		for _, piece := range piecesOf(p) {
			name, ok := l.find(piece.Name)
			if !ok {
				return nil, fmt.Errorf("the parameter %s has no name in the format", piece.Name)
			}
			q := part{name: name, param: p}
			for i := range piece.Rows {
				q.rows = append(q.rows, at+i)
			}
			if slices.ContainsFunc(rotaryParts, func(suffix string) bool { return strings.HasSuffix(piece.Name, suffix) }) {
				q.rows = architecture.Reorder(q.rows, headSize(s), s.RopePairs, l.pairs)
			}
			at += piece.Rows
			list = append(list, q)
		}
	}
	return list, nil
}

func piecesOf(p architecture.Param) []architecture.Part {
	if p.Parts == nil {
		return []architecture.Part{{Name: p.Name, Rows: p.Dims[0]}}
	}
	var list []architecture.Part
	for _, part := range p.Parts {
		list = append(list, architecture.Part{Name: p.Name + "." + part.Name, Rows: part.Rows})
	}
	return list
}

func (l layout) find(name string) (string, bool) {
	block := ""
	if rest, ok := strings.CutPrefix(name, "layers."); ok {
		block, rest, _ = strings.Cut(rest, ".")
		name = "layers.*." + rest
	}
	foreign, ok := l.names[name]
	return strings.Replace(foreign, "*", block, 1), ok
}

// rotaryParts end the names of the parts whose rows are features that rotary positions turn.
var rotaryParts = []string{".attn.qkv.q", ".attn.qkv.k", ".attn.q_norm", ".attn.k_norm"}

func headSize(s architecture.Settings) int {
	s.FillIn()
	return s.HeadSize
}
