package lower

import (
	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/internal/pass/factor"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
)

// Codes are a quantized matrix [n, m] as whole numbers, int8, and one scale for each row, float32 [n, 1]: it is their
// product.
type Codes struct {
	Integers, Scale *graph.Node
	moved           bool // rows were taken out or changed their order
}

// Of notes that these are the codes of a value. Gradients pass through the value alone.
func (c Codes) Of(value *graph.Node) {
	c.Scale = graph.StopGradient(c.Scale)
	engine.Note(value, c)
}

// CodesOf returns the codes of a value that are known.
func CodesOf(value *graph.Node) (c Codes, ok bool) {
	c, ok = engine.NoteOf(value).(Codes)
	return c, ok
}

// Map returns the codes of f(value), where f takes rows out or changes their order.
func (c Codes) Map(f func(rows *graph.Node) *graph.Node) Codes {
	return Codes{f(c.Integers), f(c.Scale), true}
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
	_, ok := q.factored()
	return ok
}

// factored is the program of the forward pass with the codes of its value, if it has any.
func (q programQuantizer) factored() (p *program.Program, ok bool) {
	if p, ok = factor.Rows(q.parts.Forward, sdk.OutputValue); !ok {
		return q.parts.Forward, false
	}
	return p, true
}

// codesIn are the codes among the outputs of such a program.
func codesIn(out map[string]*graph.Node) Codes {
	return Codes{Integers: out[factor.OutputIntegers], Scale: out[factor.OutputScale]}
}

// ProductOfCodes returns x·wᵀ, [rows of x, rows of w], from the codes of both: a product of integers, which is exact, and
// two scales. It is not ok where the codes of one are not known. A rounded product is rounded to the precision of the
// device. XLA multiplies with a scale as it writes a product, but not with one whose rows were moved: then the product
// is rounded before, lies in memory so, and what reads it multiplies.
func ProductOfCodes(x, w *graph.Node, rounded bool) (product *graph.Node, ok bool) {
	a, known := CodesOf(x)
	b, both := CodesOf(w)
	if !known || !both {
		return nil, false
	}
	product = graph.ConvertDType(engine.DotIntegers(a.Integers, b.Integers), dtypes.Float32)
	dims := product.Shape().Dimensions
	product = graph.Mul(product, graph.BroadcastToDims(a.Scale, dims...))
	if rounded && b.moved {
		product = engine.Rounded(product)
	}
	product = graph.Mul(product, graph.BroadcastToDims(graph.Reshape(b.Scale, 1, -1), dims...))
	if rounded && !b.moved {
		product = engine.Rounded(product)
	}
	return product, true
}
