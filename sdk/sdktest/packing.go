package sdktest

import (
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// checkSplit runs the parts into which hosts divide a quantizer.
func (q *quantizerRun) checkSplit(t *trial) {
	q.each(t, q.machines, func(in *instance, x []float64) {
		parts, err := autodiff.Split(in.Program, []string{sdk.OutputValue}, sdk.OutputSurrogate, in.wrt()...)
		if !t.ok(in.at(), err) {
			return
		}
		whole, err := in.quantize(x)
		if !t.ok(in.at(), err) {
			return
		}
		forward, err := in.m.Run(parts.Forward, in.inputs(x))
		if !t.ok(in.at(), err) {
			return
		}
		t.equal(in.given(x), "value of the forward pass", in.shape, forward[sdk.OutputValue].Float64s(), whole.value)
		if in.m == (oracle{}) {
			in.checkBackward(t, parts, x, forward)
		}
	})
}

// checkBackward compares the backward part with the reverse pass in one piece.
func (in *instance) checkBackward(t *trial, parts *autodiff.Partition, x []float64, forward map[string]reference.Tensor) {
	dy := normal(8, in.shape...)
	want, err := in.gradient(x, dy)
	if !t.ok(in.at(), err) {
		return
	}
	inputs := map[string]reference.Tensor{autodiff.Prefix + sdk.OutputSurrogate: reference.Floats(dy, in.shape...)}
	given := in.inputs(x)
	for _, r := range parts.Residuals {
		inputs[r.Name] = forward[r.Name]
		if r.Input {
			inputs[r.Name] = given[r.Name]
		}
	}
	got, err := in.m.Run(parts.Backward, inputs)
	if !t.ok(in.at(), err) {
		return
	}
	for name, w := range want {
		t.within(in.at(), "gradient "+name+" of the backward pass", w.Type.Shape, got[name].Float64s(), w.Floats,
			func(int) float64 { return exactness * (1 + largest(w.Floats)) })
	}
}

// checkUnpack packs matrices of ordinary and of odd rows, and with the settings given
// rows of every length.
func (q *quantizerRun) checkUnpack(t *trial) {
	q.each(t, q.machines, func(in *instance, x []float64) { in.checkUnpack(t, x) })
	for _, s := range q.long() {
		for _, m := range q.machines {
			x := normal(13, s.shape...)
			if in, err := s.instance(m, x); t.ok(s.place.on(m), err) {
				in.checkUnpack(t, x)
			}
		}
	}
	if t.check.Tried == 0 {
		t.skipf("not a packer")
	}
}

// long are the sites with the longest rows, for the first variant.
func (q *quantizerRun) long() (list []*site) {
	for _, d := range []int{128, 640} {
		list = append(list, q.sites(q.space.singles[0], 7, d)...)
	}
	return list
}

func (in *instance) checkUnpack(t *trial, x []float64) {
	if in.Unpack == nil {
		return
	}
	for _, x := range append(oddities(x, in.shape[1]), x) {
		out, err := in.quantize(x)
		if !t.ok(in.at(), err) {
			return
		}
		packed := map[string]reference.Tensor{sdk.OutputCodes: out.outputs[sdk.OutputCodes], sdk.OutputScale: out.outputs[sdk.OutputScale]}
		unpacked, err := in.m.Run(in.Unpack, packed)
		if t.ok(in.at(), err) {
			t.equal(in.given(x), "unpacked value", in.shape, unpacked[sdk.OutputValue].Float64s(), out.value)
		}
	}
}

// oddities are matrices like x with rows of d entries among which there are zeros,
// equal, large and small numbers, and others with NaN, infinities and −0, as far as
// there are rows.
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
