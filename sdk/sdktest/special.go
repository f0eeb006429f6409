package sdktest

import (
	"fmt"
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk"
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
			if !t.ok(in.at(), err) || !t.finite(in.at(), fmt.Sprintf("value of numbers like %v", x[0]), in.shape, out.value) {
				return
			}
			if out.codes != nil {
				t.finite(in.at(), fmt.Sprintf("code of numbers like %v", x[0]), in.shape, out.codes)
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
			t.finite(in.at(), "value beside the largest numbers", in.shape, out.value)
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

// exactness is what the order of a sum may do in binary64.
const exactness = 1e-12

// checkRows compares each row of a matrix with the same row alone.
func (q *quantizerRun) checkRows(t *trial) {
	q.each(t, []Machine{oracle{}}, func(in *instance, x []float64) {
		rows, d := in.shape[0], in.shape[1]
		if rows == 1 {
			return
		}
		shared, err := in.influence(x, 0)
		if !t.ok(in.at(), err) {
			return
		}
		if slices.Contains(shared[d:], true) {
			t.notef("one scale for the whole tensor with %s", settingsOrDefaults(in.settings))
			return
		}
		if in.Init != nil {
			t.notef("not with trained parameters, which rows share")
			return
		}
		base, err := in.quantize(x)
		if !t.ok(in.at(), err) {
			return
		}
		for i := range rows {
			q.rowAlone(t, in, x[i*d:(i+1)*d], base.part(i*d, (i+1)*d))
		}
	})
}

func (q *quantizerRun) rowAlone(t *trial, in *instance, x []float64, want answer) {
	s, err := q.ask(in.variant, sdk.Role(in.role), 1, len(x))
	if !t.ok(s.place, err) {
		return
	}
	alone, err := s.instance(in.m, x)
	if !t.ok(s.place, err) {
		return
	}
	out, err := alone.quantize(x)
	if t.ok(alone.at(), err) {
		t.within(alone.at(), "value of a row alone, against the row in a matrix", alone.shape, out.value, want.value,
			func(int) float64 { return exactness * largest(want.value) })
		t.equal(alone.at(), "codes of a row alone, against the row in a matrix", alone.shape, out.codes, want.codes)
		t.equal(alone.at(), "mask of a row alone, against the row in a matrix", alone.shape, out.mask, want.mask)
	}
}
