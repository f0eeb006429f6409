package sdktest

import (
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

func (q *quantizerRun) checkSplit(t *trial, in *instance, x []float64) {
	parts, err := in.Split()
	t.must(in.at(), err)
	whole, forward := in.quantize(x), in.run(parts.Forward, in.inputs(x))
	in.equal(x, "value of the forward pass", forward[spec.OutputValue].Float64s(), whole.value)
	if in.m == (Oracle{}) {
		in.checkBackward(parts, x, forward)
	}
}

func (in *instance) checkBackward(parts *autodiff.Partition, x []float64, forward map[string]reference.Tensor) {
	dy := normal(8, in.shape...)
	want, given := in.gradient(x, dy), in.inputs(x)
	inputs := map[string]reference.Tensor{}
	for _, p := range parts.Backward.Inputs {
		inputs[p.Name] = given[p.Name]
	}
	inputs[parts.Backward.Inputs[len(parts.Residuals)].Name] = reference.Floats(dy, in.shape...)
	for _, r := range parts.Residuals {
		if !r.Input {
			inputs[r.Name] = forward[r.Name]
		}
	}
	got := in.run(parts.Backward, inputs)
	for name, w := range want {
		in.t.within(in.at(), "gradient "+name+" of the backward pass", w.Type.Shape, got[name].Float64s(), w.Floats,
			upTo(exactness*(1+largest(w.Floats))))
	}
}

// checkUnpack packs and unpacks matrices with ordinary and with unusual rows and, for the
// settings given, some with longer rows.
func (q *quantizerRun) checkUnpack(t *trial) {
	q.everywhere(func(_ *trial, in *instance, x []float64) { in.checkUnpack(x) })(t)
	for _, d := range []int{128, 640} {
		for _, s := range q.sites(q.space.singles[0], 7, d) {
			for _, m := range q.machines {
				x := normal(13, s.shape...)
				t.run(func() { s.instance(t, m, x).checkUnpack(x) })
			}
		}
	}
}

// checkWhole looks for codes that are not whole numbers: a host treats codes as integers when it
// counts how they move. And codes and scales are those of the grid, where there is one.
func (q *quantizerRun) checkWhole(t *trial, in *instance, x []float64) {
	for _, x := range append(oddities(x, in.shape[1]), x) {
		codes := in.quantize(x).codes
		if codes == nil {
			return
		}
		in.equal(x, "codes, against the nearest whole numbers,", codes, whole(codes))
		in.checkGrid(x)
	}
}

// checkGrid compares with the grid that the quantizer declares for evaluation. Before a rotation
// back, values cannot be seen.
func (in *instance) checkGrid(x []float64) {
	if in.Grid == (spec.Grid{}) || in.evaluation != nil {
		return
	}
	out, rows := in.quantize(x), in.size()/in.shape[len(in.shape)-1]
	scale := out.outputs[spec.OutputScale].Float64s()
	columns, groups := in.size()/rows, 1
	if g := in.Grid.Group; g > 0 {
		groups = (columns + g - 1) / g
	}
	if n := len(scale); n != rows*groups && (n != 1 || in.Grid.Group > 0) {
		in.t.failf(in.at(), "there are %d scales, but rows of %d have %d groups each by the grid",
			n, columns, groups)
		return
	}
	want := slices.Clone(out.value)
	for i, v := range out.value {
		code, s := int32(out.codes[i]), scale[0]
		if len(scale) > 1 {
			s = scale[i/columns*groups+i%columns*groups/max(columns, groups*in.Grid.Group)]
		}
		if !in.Grid.Holds(code) && (code != 0 || v != 0 && v == v) {
			in.t.failf(in.at(), "the code %d is none of the grid, which has %v", code, in.Grid.Codes())
			return
		}
		if v == v { // others have no code
			want[i] = float64(in.Grid.Number(code)) * s
		}
	}
	if !in.rotates() {
		in.within(x, "value, against the number of the code times the scale, as the grid says,",
			out.value, want, func(i int) float64 { return 1e-6 * math.Abs(want[i]) })
	}
}

// rotates reports whether the value may be a rotation of what codes stand for.
func (in *instance) rotates() bool {
	return slices.ContainsFunc(in.Program.Nodes, func(n program.Node) bool {
		return n.Op == program.OpHadamard || n.Op == program.OpDot
	})
}

func whole(x []float64) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		if math.IsInf(v, 0) || math.IsNaN(v) {
			continue // leaves 0, which equals none of these
		}
		out[i] = math.RoundToEven(v)
	}
	return out
}

func (in *instance) checkUnpack(x []float64) {
	if in.Unpack == nil || in.evaluation != nil { // which is another answer, and what is unpacked
		return
	}
	for _, x := range append(oddities(x, in.shape[1]), x) {
		out := in.quantize(x)
		unpacked := in.run(in.Unpack, map[string]reference.Tensor{
			spec.OutputCodes: out.outputs[spec.OutputCodes], spec.OutputScale: out.outputs[spec.OutputScale]})
		in.equal(x, "unpacked value", unpacked[spec.OutputValue].Float64s(), out.value)
	}
}

// oddities are two matrices like x, with rows of d entries. The first rows of one are
// zeros, equal, large and small numbers; those of the other hold NaN, infinities and −0.
func oddities(x []float64, d int) [][]float64 {
	finite, broken := slices.Clone(x), slices.Clone(x)
	for i := range x {
		switch i / d {
		case 0:
			finite[i] = 0
		case 1:
			finite[i] = -0.375
		case 2:
			finite[i] *= 0x1p50
		case 3:
			finite[i] *= 0x1p-100
		}
	}
	for row, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1)} {
		if at := row*d + d/2; at < len(x) {
			broken[at] = bad
		}
	}
	return [][]float64{finite, broken}
}
