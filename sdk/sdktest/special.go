package sdktest

import (
	"fmt"
	"math"
	"slices"
)

// nearZero bounds what zeros may become if zero is not a level: published half-integer
// quantizers add 1e-8 to their scale.
const nearZero = 1e-6

func (q *quantizerRun) checkZeros(t *trial) {
	q.each(t, q.machines, func(in *instance, _ []float64) {
		zeros := make([]float64, in.size())
		out := in.from(zeros).quantize(zeros)
		if !in.finite(nil, "value of zeros", out.value) {
			return
		}
		if largest(out.value) > 0 {
			in.within(nil, "value of zeros", out.value, zeros, upTo(nearZero))
			t.notef("zero is no level with %s", settingsOrDefaults(in.settings))
			return
		}
		if in.Init != nil {
			return // with a trained scale zeros may lie at the end of a grid
		}
		if len(out.codes) > 0 {
			in.equal(nil, "codes of zeros", out.codes, zeros)
		}
		if len(out.mask) > 0 {
			in.equal(nil, "mask of zeros", out.mask, full(1, len(zeros)))
		}
	})
}

func settingsOrDefaults(settings map[string]any) string {
	if len(settings) == 0 {
		return "the defaults"
	}
	return settingsText(settings)
}

func (q *quantizerRun) checkConstants(t *trial) {
	q.each(t, q.machines, func(in *instance, _ []float64) {
		n := in.size()
		tiny := make([]float64, n)
		for i := range tiny {
			tiny[i] = 0x1p-149 * float64(1+i%7)
		}
		for _, x := range [][]float64{full(-0.375, n), full(3, n), tiny, full(0x1p-140, n)} {
			out := in.from(x).quantize(x)
			if !in.finite(x, fmt.Sprintf("value of numbers like %v", x[0]), out.value) {
				return
			}
			if len(out.codes) > 0 {
				in.finite(x, fmt.Sprintf("code of numbers like %v", x[0]), out.codes)
			}
		}
	})
}

// checkLargest puts a row of the largest numbers first. In binary32 their squares
// overflow, and what becomes of the row is the plugin's choice; in binary64 it is a row
// like any other.
func (q *quantizerRun) checkLargest(t *trial) {
	q.each(t, q.machines, func(in *instance, x []float64) {
		d := in.shape[1]
		huge := slices.Clone(x)
		for j := range d {
			huge[j] = math.MaxFloat32 * float64(1-2*(j%2))
		}
		out := in.quantize(huge)
		if in.m == (Oracle{}) {
			in.finite(huge, "value beside the largest numbers", out.value)
		}
		if in.Init != nil || slices.Contains(in.influence(x, 0)[d:], true) {
			return // one scale, or one trained parameter, for all rows
		}
		below, want := out.part(d, len(x)), in.quantize(x).part(d, len(x))
		in.equal(nil, "value in a row below one of the largest numbers", below.value, want.value)
		in.equal(nil, "codes in a row below one of the largest numbers", below.codes, want.codes)
	})
}
