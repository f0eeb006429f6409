package lower

import (
	"maps"

	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/host/triton"
	"github.com/cage-qat/cage/internal/pass/factor"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
)

// Codes are a quantized matrix [n, m] as whole numbers, int8, and one scale for each row, float32 [n, 1]: it is their
// product.
type Codes struct{ Integers, Scale *graph.Node }

// Of notes that these are the codes of a value. Gradients pass through the value alone.
func (c Codes) Of(value *graph.Node) {
	engine.Note(value, Codes{c.Integers, graph.StopGradient(c.Scale)})
}

// CodesOf returns the codes of a value that are known.
func CodesOf(value *graph.Node) (c Codes, ok bool) {
	c, ok = engine.NoteOf(value).(Codes)
	return c, ok
}

// Map returns the codes of f(value), where f takes rows out or changes their order.
func (c Codes) Map(f func(rows *graph.Node) *graph.Node) Codes {
	return Codes{f(c.Integers), f(c.Scale)}
}

// Factoring is a [Quantizer] of which it is known whether its values have codes.
type Factoring interface {
	Quantizer
	// Factors tells that Forward finds the codes of its value where the device multiplies integers.
	Factors() bool
}

var _ Factoring = programQuantizer{}

// Factors implements [Factoring].
func (q programQuantizer) Factors() bool {
	_, _, ok := q.factored()
	return ok
}

// factored is the program of the forward pass with the codes of its value, if it has any.
func (q programQuantizer) factored() (p *program.Program, memory InMemory, ok bool) {
	if p, ok = factor.Rows(q.parts.Forward, sdk.OutputValue); !ok {
		return q.parts.Forward, q.memory, false
	}
	memory = InMemory{factor.OutputIntegers: triton.Int8}
	maps.Copy(memory, q.memory)
	return p, memory, true
}

// ProductOfCodes returns x·wᵀ, [rows of x, rows of w], from the codes of both: a product of integers, which is exact, and
// two scales. It is not ok where the codes of one are not known. A rounded product is rounded to the precision of the
// device between the scales: it lies in memory so, and what reads it multiplies with the second one.
func ProductOfCodes(x, w *graph.Node, rounded bool) (product *graph.Node, ok bool) {
	a, known := CodesOf(x)
	b, both := CodesOf(w)
	if !known || !both {
		return nil, false
	}
	product = graph.ConvertDType(engine.DotIntegers(a.Integers, b.Integers), dtypes.Float32)
	dims := product.Shape().Dimensions
	product = graph.Mul(product, graph.BroadcastToDims(a.Scale, dims...))
	if rounded {
		product = engine.Rounded(product)
	}
	return graph.Mul(product, graph.BroadcastToDims(graph.Reshape(b.Scale, 1, -1), dims...)), true
}
