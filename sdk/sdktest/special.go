package sdktest

import (
	"fmt"
	"math"
	"slices"
)

// nearZero bounds what zeros may become where zero is no level: published
// half-integer quantizers add 1e-8 to their scale.
const nearZero = 1e-6

func (q *quantizerRun) checkZeros(t *trial) {
	q.each(t, q.machines, func(in *instance, _ []float64) {
		zeros := make([]float64, in.size())
		in, err := in.instance(in.m, zeros)
		if !t.ok(in.at(), err) {
			return
		}
		out, err := in.quantize(zeros)
		if !t.ok(in.at(), err) || !t.finite(in.at(), "value of zeros", in.shape, out.value) {
			return
		}
		if most := largest(out.value); most > 0 {
			t.within(in.at(), "value of zeros", in.shape, out.value, zeros, func(int) float64 { return nearZero })
			t.notef("zero is no level with %s", settingsOrDefaults(in.settings))
			return
		}
		if in.Init != nil {
			return // with a trained scale zeros may lie at the end of a grid
		}
		if out.codes != nil {
			t.equal(in.at(), "codes of zeros", in.shape, out.codes, zeros)
		}
		if out.mask != nil {
			t.equal(in.at(), "mask of zeros", in.shape, out.mask, full(1, len(zeros)))
		}
	})
}

func settingsOrDefaults(settings map[string]any) string {
	if len(settings) == 0 {
		return "the defaults"
	}
	return settingsText(settings)
}

// size is the number of elements of the site's tensor.
func (p place) size() int {
	n := 1
	for _, d := range p.shape {
		n *= d
	}
	return n
}

func (q *quantizerRun) checkConstants(t *trial) {
	q.each(t, q.machines, func(in *instance, _ []float64) {
		tiny := make([]float64, in.size())
		for i := range tiny {
			tiny[i] = 0x1p-149 * float64(1+i%7)
		}
		for _, x := range [][]float64{full(-0.375, in.size()), full(3, in.size()), tiny, full(0x1p-140, in.size())} {
			in, err := in.instance(in.m, x)
			if !t.ok(in.at(), err) {
				return
			}
			out, err := in.quantize(x)
			if !t.ok(in.at(), err) || !t.finite(in.given(x), fmt.Sprintf("value of numbers like %v", x[0]), in.shape, out.value) {
				return
			}
			if out.codes != nil {
				t.finite(in.given(x), fmt.Sprintf("code of numbers like %v", x[0]), in.shape, out.codes)
			}
		}
	})
}

// checkLargest puts a row of the largest numbers first. What becomes of it in
// binary32, where their squares overflow, is the plugin's choice; in binary64 it is
// a row like others.
func (q *quantizerRun) checkLargest(t *trial) {
	q.each(t, q.machines, func(in *instance, x []float64) {
		d := in.shape[1]
		huge := slices.Clone(x)
		for j := range d {
			huge[j] = math.MaxFloat32 * float64(1-2*(j%2))
		}
		out, err := in.quantize(huge)
		if !t.ok(in.at(), err) {
			return
		}
		if in.m == (oracle{}) {
			t.finite(in.given(huge), "value beside the largest numbers", in.shape, out.value)
		}
		if shared, err := in.influence(x, 0); !t.ok(in.at(), err) || in.Init != nil || slices.Contains(shared[d:], true) {
			return // one scale, or one trained parameter, for all rows
		}
		base, err := in.quantize(x)
		if t.ok(in.at(), err) {
			below, want := out.part(d, len(x)), base.part(d, len(x))
			t.equal(in.at(), "value in a row below one of the largest numbers", in.shape, below.value, want.value)
			t.equal(in.at(), "codes in a row below one of the largest numbers", in.shape, below.codes, want.codes)
		}
	})
}
