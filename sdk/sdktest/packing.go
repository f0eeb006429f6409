package sdktest

import (
	"math"

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
		t.equal(in.at(), "value of the forward pass", in.shape, forward[sdk.OutputValue].Float64s(), whole.value)
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

// checkUnpack packs a normal matrix, and one with rows of zeros and of NaN.
func (q *quantizerRun) checkUnpack(t *trial) {
	q.each(t, q.machines, func(in *instance, x []float64) {
		if in.Unpack == nil {
			return
		}
		odd := with(x, 0, math.NaN())
		for j := range in.shape[1] {
			odd[in.shape[1]+j] = 0
		}
		for _, x := range [][]float64{x, odd} {
			out, err := in.quantize(x)
			if !t.ok(in.at(), err) {
				return
			}
			packed := map[string]reference.Tensor{sdk.OutputCodes: out.outputs[sdk.OutputCodes], sdk.OutputScale: out.outputs[sdk.OutputScale]}
			unpacked, err := in.m.Run(in.Unpack, packed)
			if t.ok(in.at(), err) {
				t.equal(in.at(), "unpacked value", in.shape, unpacked[sdk.OutputValue].Float64s(), out.value)
			}
		}
	})
	if t.check.Tried == 0 {
		t.skipf("not a packer")
	}
}
