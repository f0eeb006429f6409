package sdktest

import (
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk/answer"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// checkSplit runs the parts into which hosts divide a quantizer.
func (q *quantizerRun) checkSplit(t *trial) {
	q.each(t, q.machines, func(in *instance, x []float64) {
		parts, err := in.Split()
		t.must(in.at(), err)
		whole, forward := in.quantize(x), in.run(parts.Forward, in.inputs(x))
		in.equal(x, "value of the forward pass", forward[answer.OutputValue].Float64s(), whole.value)
		if in.m == (Oracle{}) {
			in.checkBackward(parts, x, forward)
		}
	})
}

// checkBackward compares the backward part with the reverse pass in one piece.
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
	q.each(t, q.machines, (*instance).checkUnpack)
	for _, d := range []int{128, 640} {
		for _, s := range q.sites(q.space.singles[0], 7, d) {
			for _, m := range q.machines {
				x := normal(13, s.shape...)
				t.run(func() { s.instance(t, m, x).checkUnpack(x) })
			}
		}
	}
	t.skipUntried("not a packer")
}

// checkWhole looks for codes that are not whole numbers: a host treats codes as integers when it
// counts how they move.
func (q *quantizerRun) checkWhole(t *trial) {
	q.each(t, q.machines, func(in *instance, x []float64) {
		for _, x := range append(oddities(x, in.shape[1]), x) {
			codes := in.quantize(x).codes
			if codes == nil {
				return
			}
			in.equal(x, "codes, against the nearest whole numbers,", codes, whole(codes))
		}
	})
	t.skipUntried("no codes")
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
			answer.OutputCodes: out.outputs[answer.OutputCodes], answer.OutputScale: out.outputs[answer.OutputScale]})
		in.equal(x, "unpacked value", unpacked[answer.OutputValue].Float64s(), out.value)
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
