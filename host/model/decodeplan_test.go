package model

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/compute/matmul"
	"github.com/cage-qat/cage/host/compute/plan"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/kernels"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/internal/linalg"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// task runs the program of a task by a plan, with inputs and parameters by name. Inputs with the
// names of outputs are changed in place.
func task(t testing.TB, m *transformer, shape network.Shape, arithmetic matmul.Arithmetic,
	in map[string]any) map[string]any {
	t.Helper()
	p, compiled, err := planOf(m, ProgramOptions{Shape: shape}, arithmetic)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]any{}
	for _, o := range p.Outputs {
		if out[o.Name] = in[o.Name]; out[o.Name] == nil {
			out[o.Name] = make([]float32, p.TypeOf(o.Value).Size())
		}
	}
	inputs := lists.Map(p.Inputs, func(input program.Input) any { return in[input.Name] })
	outputs := lists.Map(p.Outputs, func(o program.Output) any { return out[o.Name] })
	err = compiled.Run(inputs, outputs, inTurn)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A reader reads two sequences of different lengths, the second of which has padding before it.
type reader struct {
	m       *transformer
	weights map[string]any
	tokens  []int32 // of both, one after the other
	first   []int32
}

const cacheLength, sequenceLength = 16, 11

func newSequences(m *transformer) reader {
	r := reader{m: m, weights: map[string]any{}, first: []int32{0, 4}}
	for i, w := range hashedWeights(m.params) {
		for j, v := range w { // so that they are exact in bfloat16
			w[j] = math.Float32frombits(math.Float32bits(v) &^ (1<<16 - 1))
		}
		r.weights[m.params[i].Name] = w
	}
	r.weights[network.Projection] = r.weights[m.Head()]
	rng := rand.New(rand.NewPCG(7, 8))
	for range 2 * sequenceLength {
		r.tokens = append(r.tokens, int32(rng.IntN(m.Vocab)))
	}
	return r
}

// read returns the logits after the last token, read in pieces. weights replace those of the reader
// for single tokens.
func (r reader) read(t testing.TB, pieces []int, arithmetic matmul.Arithmetic,
	weights map[string]any) []float32 {
	t.Helper()
	in := map[string]any{network.First: r.first}
	for layer := range r.m.Layers {
		for _, name := range network.CacheOf(layer) {
			cache := make([]float32, 2*r.m.KVHeads*cacheLength*r.m.HeadSize)
			for i := range cache { // entries after the last piece must not affect the result
				cache[i] = 1e3
			}
			in[name] = cache
		}
	}
	start, logits := 0, []float32(nil)
	for _, n := range pieces {
		in[network.Start] = []int32{int32(start)}
		in[network.Tokens] = slices.Concat(r.tokens[start:start+n],
			r.tokens[sequenceLength+start:][:n])
		for name, w := range r.weights {
			if in[name] = w; n == 1 && weights[name] != nil {
				in[name] = weights[name]
			}
		}
		shape := network.Shape{Task: network.Decode, Batch: 2, Context: n, Cache: cacheLength}
		logits = task(t, r.m, shape, arithmetic, in)[network.Logits].([]float32)
		start += n
	}
	return logits
}

// TestDecodePlan checks that two sequences, in pieces of any size, have the logits of the whole
// sequences.
func TestDecodePlan(t *testing.T) {
	eachLanguage(t, func(t *testing.T, language Language) {
		m := language.(*transformer)
		r := newSequences(m)
		for _, pieces := range [][]int{{sequenceLength}, {8, 1, 1, 1}, {3, 5, 3}} {
			got := r.read(t, pieces, matmul.Float32, nil)
			for row, begin := range r.first {
				sequence := r.tokens[row*sequenceLength+int(begin) : (row+1)*sequenceLength]
				in := map[string]any{network.Tokens: append(slices.Clone(sequence), 0)}
				for name, w := range r.weights {
					in[name] = w
				}
				shape := network.Shape{Batch: 1, Context: len(sequence), Head: network.Head{Logits: true}}
				all := task(t, m, shape, matmul.Float32, in)[network.Logits].([]float32)
				want := lists.Map(all[len(all)-m.Vocab:], func(v float32) float64 { return float64(v) })
				closeTo(t, "logits", got[row*m.Vocab:(row+1)*m.Vocab], want, 2e-6)
			}
		}
	})
}

// TestDecodeHalves checks that weights that are exact in bfloat16 give the same bits in half the
// memory.
func TestDecodeHalves(t *testing.T) {
	if !linalg.HasBFloat16() {
		t.Skip("this processor has no kernels for them")
	}
	r := newSequences(newLlama(tiny))
	halves := map[string]any{}
	for name, w := range r.weights {
		if name == "embedding" { // it is looked up
			continue
		}
		for _, p := range append(r.m.params, architecture.Param{Name: network.Projection,
			Dims: []int{r.m.Vocab, r.m.Width}}) {
			if p.Name == name && len(p.Dims) == 2 {
				halves[name] = lists.Map(w.([]float32), func(v float32) uint16 {
					return uint16(math.Float32bits(v) >> 16)
				})
			}
		}
	}
	pieces := []int{8, 1, 1, 1}
	want, got := r.read(t, pieces, matmul.Float32, nil), r.read(t, pieces, matmul.Float32, halves)
	if !slices.Equal(got, want) {
		t.Errorf("the logits are %v, want %v", got, want)
	}
}

// TestDecodeBFloat16 checks that with products in bfloat16 a token alone has nearly the logits of a
// piece: sums in another order change a few roundings, which has less than a quarter of the effect
// of not rounding.
func TestDecodeBFloat16(t *testing.T) {
	eachLanguage(t, func(t *testing.T, language Language) {
		r := newSequences(language.(*transformer))
		want := r.read(t, []int{8, 3}, matmul.BFloat16, nil)
		distance := func(arithmetic matmul.Arithmetic) (sum float64) {
			for i, v := range r.read(t, []int{8, 1, 1, 1}, arithmetic, nil) {
				sum += math.Pow(float64(v-want[i]), 2)
			}
			return math.Sqrt(sum)
		}
		if rounded, not := distance(matmul.BFloat16), distance(matmul.Float32); !(rounded < not/4) {
			t.Errorf("the distance to the logits of a piece is %.2g, without rounding %.2g", rounded, not)
		}
	})
}

// TestTaskKernels does the same as TestCallKernels for the calls of scores and of decoding.
func TestTaskKernels(t *testing.T) {
	eachLanguage(t, func(t *testing.T, language Language) {
		m, done := language.(*transformer), map[string]bool{}
		rng := rand.New(rand.NewPCG(uint64(len(t.Name())), uint64(m.Vocab)))
		for _, shape := range []network.Shape{
			{Task: network.Score, Batch: 2, Context: 9, Targets: 5},
			{Task: network.Decode, Batch: 2, Context: 3, Cache: 8},
			{Task: network.Decode, Batch: 2, Context: 1, Cache: 8},
		} {
			p, err := network.New(m.Settings, shape, network.Quantizers{})
			if err != nil {
				t.Fatal(err)
			}
			table := m.Calls(shape).Kernels
			if p, err = plan.Prepare(p, plan.Options{Kernels: table, Sums: kernels.Sums}); err != nil {
				t.Fatal(err)
			}
			for _, n := range p.Nodes {
				if c := n.Attr.Call; n.Op == program.OpCall && !done[c.Name] {
					done[c.Name] = true
					for arithmetic, tolerance := range callTolerances {
						compareCall(t, c, m.Vocab, rng, arithmetic, tolerance, table)
					}
				}
			}
			delete(done, network.Linear) // other kernels
		}
		if !done[network.Scores] || !done[network.CachedAttention] {
			t.Errorf("the calls are %v", done)
		}
	})
}

// TestOfCodes compares products of codes with those of the values, which are integers times scales:
// forward and backward, for sequences and for single tokens.
func TestOfCodes(t *testing.T) {
	const rows, in, out = 5, 24, 16
	rng := rand.New(rand.NewPCG(1, 2))
	matrix := func(n int) (values, scale []float32, codes []int8, wide reference.Tensor) {
		var exact []float64
		for range n {
			scale = append(scale, float32(rng.Float64()))
			for range in {
				code := int8(rng.IntN(256) - 128)
				codes = append(codes, code)
				values = append(values, float32(code)*scale[len(scale)-1])
				exact = append(exact, float64(values[len(values)-1]))
			}
		}
		return values, scale, codes, reference.Floats(exact, n, in)
	}
	x, xScale, xCodes, exactX := matrix(rows)
	w, wScale, wCodes, exactW := matrix(out)
	for _, table := range []kernels.Table{kernels.For(0), kernels.ForFew()} {
		for _, arithmetic := range []matmul.Arithmetic{matmul.Float32, matmul.BFloat16} {
			b, meaning := program.NewBuilder("product"), program.NewBuilder("product")
			var args, inner []program.Value
			for _, input := range []struct {
				name          string
				rows, columns int
			}{{"x", rows, in}, {"w", out, in}, {"x_integers", rows, in}, {"x_scale", rows, 1},
				{"w_integers", out, in}, {"w_scale", out, 1}} {
				t := program.FloatType(input.rows, input.columns)
				args = append(args, b.Input(input.name, t))
				inner = append(inner, meaning.Input(input.name, t))
			}
			meaning.Output("y", inner[0].Dot(inner[1], [2][]int{{1}, {1}}, [2][]int{}))
			p, err := meaning.Build()
			if err != nil {
				t.Fatal(err)
			}
			b.Output("y", b.Call(&program.Call{Name: network.OfCodes, Meaning: p}, args...)[0])
			whole, err := b.Build()
			if err != nil {
				t.Fatal(err)
			}
			compiled, err := plan.Compile(whole, plan.Options{Arithmetic: arithmetic, Kernels: table})
			if err != nil {
				t.Fatal(err)
			}
			y := make([]float32, rows*out)
			if err := compiled.Run([]any{x, w, xCodes, xScale, wCodes, wScale}, []any{y},
				inTurn); err != nil {
				t.Fatal(err)
			}
			want, err := reference.Run(p, map[string]reference.Tensor{"x": exactX, "w": exactW,
				"x_integers": exactX, "w_integers": exactW,
				"x_scale": reference.Floats(make([]float64, rows), rows, 1),
				"w_scale": reference.Floats(make([]float64, out), out, 1)})
			if err != nil {
				t.Fatal(err)
			}
			closeTo(t, "products", y, want["y"].Floats, 1e-6)
		}
	}
}
