package sdktest

import (
	"math"
	"slices"
)

// sweepPoints is the number of places at which a sweep looks.
const sweepPoints = 401

// sweep moves one entry of a row through its range while the sum, the sum of squares
// and the maximum of the row, and with them its scale, stay what they are: a second
// entry moves against it, and two more make up for the squares.
type sweep struct {
	in   *instance
	x    []float64
	at   int // of the entry; the three others follow
	span float64
}

// newSweep prepares the second row of a matrix. The entries are the third four of a
// row, so that they share the scale of any block from 16 on, with the largest one
// after them.
func newSweep(in *instance, x []float64) sweep {
	const largest, span = 2.5, 2.4
	x = slices.Clone(x)
	for i, v := range x {
		x[i] = 2 * math.Tanh(v/2)
	}
	d := in.shape[1]
	x[d+13], x[d+14] = largest, -largest
	return sweep{in, x, d + 8, span}
}

// point is the matrix with the entry at v.
func (s sweep) point(v float64) []float64 {
	x := slices.Clone(s.x)
	rest := math.Sqrt(s.span*s.span - v*v)
	x[s.at], x[s.at+1], x[s.at+2], x[s.at+3] = v, -v, rest, -rest
	return x
}

// run returns the places and the values there. It is not ok when the other entries
// of the matrix do not stay where they are: then the entry is mixed with others, or
// the scale depends on something else.
func (s sweep) run() (places, values []float64, ok bool, err error) {
	var others []float64
	for i := range sweepPoints {
		v := s.span * (2*float64(i)/(sweepPoints-1) - 1)
		out, err := s.in.quantize(s.point(v))
		if err != nil {
			return nil, nil, false, err
		}
		places, values = append(places, v), append(values, out.value[s.at])
		out.value = slices.Delete(slices.Clone(out.value), s.at, s.at+4)
		if others == nil {
			others = out.value
		}
		for i, v := range out.value {
			if !(distance(v, others[i]) <= 1e-9) {
				return nil, nil, false, nil
			}
		}
	}
	return places, values, true, nil
}

// checkNearest looks at each variant in which the levels can be seen.
func (q *quantizerRun) checkNearest(t *trial) {
	if q.traits.AnyRounding {
		t.skipf("any rounding is claimed")
		return
	}
	seen := 0
	q.each(t, []Machine{oracle{}}, func(in *instance, x []float64) {
		if rows, d := in.shape[0], in.shape[1]; d%2 == 0 || d < 16 || rows < 2 {
			return // only rows of odd length are surely not rotated, and a sweep needs some room
		}
		s := newSweep(in, x)
		places, values, ok, err := s.run()
		if !t.ok(in.at(), err) || !ok {
			return
		}
		levels := distinct(values)
		if len(levels) < 2 || len(levels) > sweepPoints/2 {
			return
		}
		seen++
		p := in.at()
		p.input = places
		t.within(p, "value of an entry for which there is a nearer level", nil, values, nearest(levels, places, values),
			func(int) float64 { return 1e-6 })
	})
	if seen == 0 {
		t.skipf("the levels of an entry cannot be seen from outside")
	}
}

// distinct lists values that differ, sorted.
func distinct(values []float64) []float64 {
	sorted := slices.Sorted(slices.Values(values))
	return slices.CompactFunc(sorted, func(a, b float64) bool { return math.Abs(a-b) <= 1e-9 })
}

// nearest is the nearest level for each place; of two that are equally near, the
// one that was taken.
func nearest(levels, places, values []float64) []float64 {
	out := slices.Clone(values)
	for i, v := range places {
		for _, l := range levels {
			if math.Abs(l-v) < math.Abs(out[i]-v)-1e-6 {
				out[i] = l
			}
		}
	}
	return out
}

// How bad the error of a matrix of uniform numbers may be, which has no outliers to
// clip: the factor between the error of a row and that of the median row, unless it is
// small all the same, as where one rotated entry is clipped; and with the default
// settings the part of the error that is bias, and the factor by which the values
// shrink or grow.
const (
	rowFactor  = 2
	rowError   = 0.1
	biasPart   = 0.3
	least      = 0.5
	greatest   = 1.5
	errorRows  = 16
	errorWidth = 256
)

func (q *quantizerRun) checkError(t *trial) {
	for i, v := range q.space.core() {
		for _, s := range q.sites(v, errorRows, errorWidth) {
			x := uniform(9, s.shape...)
			in, err := s.instance(oracle{}, x)
			if !t.ok(s.place, err) {
				continue
			}
			out, err := in.quantize(x)
			if !t.ok(in.at(), err) {
				continue
			}
			t.tried()
			relative := rowErrors(t, in, x, out.value)
			if i == 0 {
				t.notef("error %.3g of the norm", relative)
			}
			if len(v.changed) == 0 { // a person may choose a coarse or an unsigned grid
				bias(t, in, x, out.value)
			}
		}
	}
}

// rowErrors compares the rows with each other and returns the error of the median
// row in parts of its norm.
func rowErrors(t *trial, in *instance, x, value []float64) float64 {
	errs := make([]float64, errorRows)
	for i := range errs {
		row, q := x[i*errorWidth:(i+1)*errorWidth], value[i*errorWidth:(i+1)*errorWidth]
		e := difference(q, row)
		errs[i] = math.Sqrt(dotProduct(e, e) / dotProduct(row, row))
	}
	median := slices.Sorted(slices.Values(errs))[errorRows/2]
	for i, e := range errs {
		if !(e <= max(rowFactor*median, rowError)) {
			t.failf(in.at(), "the error of row %d is %.3g of its norm, that of the median row %.3g", i, e, median)
			break
		}
	}
	return median
}

func bias(t *trial, in *instance, x, value []float64) {
	e := difference(value, x)
	mean := dotProduct(e, full(1, len(e))) / float64(len(e))
	if rms := math.Sqrt(dotProduct(e, e) / float64(len(e))); math.Abs(mean) > biasPart*rms {
		t.failf(in.at(), "the mean of Q(x) − x is %.3g, its root mean square %.3g: the rounding is biased", mean, rms)
	}
	if g := dotProduct(x, value) / dotProduct(x, x); !(g > least && g < greatest) {
		t.failf(in.at(), "Q(x) is %.3g times x in the mean: the scale is wrong", g)
	}
}

func difference(x, y []float64) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = v - y[i]
	}
	return out
}
