// Command adam8bit is Adam with moments of 8 bits (Dettmers et al. 2021, "8-bit Optimizers via
// Block-wise Quantization", arXiv 2110.02861, as in bitsandbytes): in each block of 256 elements, a
// moment is the largest magnitude there, times one of 256 numbers of a fixed table, the "dynamic
// tree", whose numbers lie close together near zero and cover seven decades. An update computes
// with the moments before they are rounded:
//
//	m ← β1·m + (1−β1)·g
//	v ← β2·v + (1−β2)·g²
//	u = (m/(1−β1ᵗ)) / (√(v/(1−β2ᵗ)) + ε)
//
// The state takes 2 bytes per element and 8 per block. Small tensors keep moments of 32 bits. The
// paper's embedding layer with a norm of its own is a change of the model, and not here.
package main

import (
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// block is the number of elements that share a scale.
const block = 256

// adam8bit implements [sdk.Optimizer] and [sdk.Compact].
type adam8bit struct{}

var _ sdk.Compact = adam8bit{}

// The names of the state tensors: the moments, and what scales them in each block.
const (
	stateM, stateV           = "m", "v"
	stateMScale, stateVScale = "m_scale", "v_scale"
)

// Describe declares the parameters, with the defaults of bitsandbytes.
func (adam8bit) Describe() sdk.Description {
	return sdk.Description{
		Name:    "adam8bit",
		Version: "1.0.0",
		Doc:     "Adam with block-wise quantized moments of 8 bits (Dettmers et al. 2021).",
		Parameters: []sdk.Parameter{
			sdk.Float("beta1", 0.9, 0, 0.999999, "decay rate of the first moment"),
			sdk.Float("beta2", 0.999, 0, 0.999999, "decay rate of the second moment"),
			sdk.Float("eps", 1e-8, 1e-15, 1, "added to the root of the second moment"),
			sdk.Int("min_size", 4096, 0, 1<<31, "tensors with fewer elements keep moments of 32 bits"),
		},
	}
}

// narrow reports whether the moments of t have 8 bits.
func narrow(t sdk.Tensor) bool { return product(t.Shape) >= t.Int("min_size") }

func product(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// Storage implements [sdk.Compact].
func (adam8bit) Storage(t sdk.Tensor) map[string]sdk.Storage {
	if !narrow(t) {
		return nil
	}
	return map[string]sdk.Storage{stateM: sdk.StoreUint8, stateV: sdk.StoreUint8}
}

// Init starts both moments at zero.
func (adam8bit) Init(b *program.Builder, _ program.Value, t sdk.Tensor) (sdk.State, error) {
	if !narrow(t) {
		return sdk.State{stateM: b.Zeros(t.Shape...), stateV: b.Zeros(t.Shape...)}, nil
	}
	blocks := (product(t.Shape) + block - 1) / block
	zero := func(table []float64) program.Value {
		return b.Full(float64(slices.Index(table, 0)), t.Shape...)
	}
	return sdk.State{stateM: zero(signed), stateV: zero(unsigned), stateMScale: b.Zeros(blocks, 1),
		stateVScale: b.Zeros(blocks, 1)}, nil
}

// Update writes the program of one step.
func (adam8bit) Update(
	b *program.Builder, in sdk.UpdateInput, t sdk.Tensor,
) (program.Value, sdk.State, error) {
	beta1, beta2, g := t.Float("beta1"), t.Float("beta2"), in.Gradient
	m, v := in.State[stateM], in.State[stateV]
	if narrow(t) {
		m, v = decode(m, in.State[stateMScale], signed), decode(v, in.State[stateVScale], unsigned)
	}
	m = m.Scale(beta1).Add(g.Scale(1 - beta1))
	v = v.Scale(beta2).Add(g.Square().Scale(1 - beta2))
	u := m.Div(sdk.BiasCorrection(in.Step, beta1)).
		Div(v.Div(sdk.BiasCorrection(in.Step, beta2)).Sqrt().Shift(t.Float("eps")))
	if !narrow(t) {
		return u, sdk.State{stateM: m, stateV: v}, nil
	}
	mCodes, mScale := encode(m, signed)
	vCodes, vScale := encode(v, unsigned)
	// A negative moment stays negative, as in bitsandbytes.
	zero := float64(slices.Index(signed, 0))
	lost := m.Lt(b.Const(0)).And(mCodes.Eq(b.Const(zero)))
	mCodes = mCodes.Sub(lost.Convert(program.Float))
	return u, sdk.State{stateM: mCodes, stateV: vCodes, stateMScale: mScale, stateVScale: vScale}, nil
}

// decode returns the moment with these codes.
func decode(codes, scale program.Value, table []float64) program.Value {
	numbers := codes.Convert(program.Int).Lookup(codes.Builder().Table(table, len(table)))
	return numbers.Mul(spread(scale, codes.Shape()))
}

// encode returns the codes of a moment and the scale of each block.
func encode(moment program.Value, table []float64) (codes, scale program.Value) {
	b := moment.Builder()
	n := int(moment.Type().Size())
	flat := moment.Reshape(n)
	if rest := -n & (block - 1); rest > 0 {
		flat = flat.Concatenate(0, b.Zeros(rest))
	}
	scale = flat.Abs().Reshape((n+block-1)/block, block).MaxRow()
	divisor := scale.Gt(b.Const(0)).Select(scale, b.Const(1))
	index := moment.Div(spread(divisor, moment.Shape())).Nearest(b.Table(table, len(table)))
	return index.Convert(program.Float), scale
}

// spread gives each element of a tensor the number of its block.
func spread(blocks program.Value, shape []int) program.Value {
	n := blocks.Shape()[0]
	flat := blocks.Broadcast([]int{n, block}, []int{0, 1}).Reshape(n * block)
	return flat.At(0, 0, product(shape)).Reshape(shape...)
}

// signed and unsigned are the numbers that codes stand for, in ascending order.
var signed, unsigned = dynamic(true), dynamic(false)

// dynamic is the table of the dynamic tree: in the decade 10^(i−6) there are 2^i numbers of each
// sign, or 2^(i+1) positive ones: the middles between numbers that divide [0.1, 1] evenly. With 0
// and 1 there are 256.
func dynamic(negative bool) []float64 {
	table := []float64{0, 1}
	for i := range 7 {
		n := 1 << i
		if !negative {
			n *= 2
		}
		decade := math.Pow(10, float64(i-6))
		for k := range n {
			v := decade * (0.1 + 0.9*(float64(k)+0.5)/float64(n))
			table = append(table, v)
			if negative {
				table = append(table, -v)
			}
		}
	}
	slices.Sort(table)
	return table
}

func main() { sdk.ServeOptimizer(adam8bit{}) }
