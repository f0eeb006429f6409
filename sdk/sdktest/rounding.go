package sdktest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/floats"

	"github.com/cage-qat/cage/sdk"
)

// sweepPoints is the number of places that a sweep tries.
const sweepPoints = 401

// sweep moves one entry of the second row of a matrix through its range, while the sum,
// the sum of squares and the maximum of the row, and with them its scale, stay the same:
// a second entry moves the opposite way, and two more make up for the squares. The four
// entries are those with the indices 8 to 11 of the row. So in any block of 16 entries or
// more they share the scale with the largest entry, which comes after them.
//
// It returns the places of the entry, and its quantized values there. ok is false if the
// other entries of the matrix do not keep their values: then the entry is mixed with
// others, or the scale depends on something else.
func sweep(in *instance, x []float64) (places, values []float64, ok bool) {
	var others []float64
	for i := range sweepPoints {
		v := sweepSpan * (2*float64(i)/(sweepPoints-1) - 1)
		x, at := swept(in, x, v)
		value := in.quantize(x).value
		places, values = append(places, v), append(values, value[at])
		value = slices.Delete(slices.Clone(value), at, at+4)
		if others == nil {
			others = value
		}
		if !slices.EqualFunc(value, others, func(a, b float64) bool { return distance(a, b) <= 1e-9 }) {
			return nil, nil, false
		}
	}
	return places, values, true
}

// sweepSpan is how far an entry is moved.
const sweepSpan = 2.4

func swept(in *instance, x []float64, v float64) (row []float64, at int) {
	row = mapped(x, func(v float64) float64 { return 2 * math.Tanh(v/2) })
	d := in.shape[1]
	row[d+13], row[d+14] = sweepLargest, -sweepLargest
	rest := math.Sqrt(sweepSpan*sweepSpan - v*v)
	copy(row[d+8:], []float64{v, -v, rest, -rest})
	return row, d + 8
}

func (q *quantizerRun) checkNearest(t *trial, in *instance, x []float64) {
	if q.anyRounding(in.siteAnswer) {
		if in.variant.claims(sdk.ClaimAnyRounding) {
			t.notef("any_rounding is claimed")
		}
		return
	}
	if rows, d := in.shape[0], in.shape[1]; d%2 == 0 || d < 16 || rows < 2 {
		return // only rows of odd length are surely not rotated, and a sweep needs some room
	}
	places, values, ok := sweep(in, x)
	levels := slices.CompactFunc(slices.Sorted(slices.Values(values)), func(a, b float64) bool { return math.Abs(a-b) <= 1e-9 })
	if !ok || len(levels) < 2 || len(levels) > sweepPoints/2 {
		return
	}
	if t.within(in.given(places), "value of an entry for which there is a nearer level (if that is meant, "+claim(sdk.ClaimAnyRounding)+")", nil, values, nearest(levels, places, values), upTo(1e-6)) {
		in.checkReach(x, levels)
	}
}

// sweepLargest is the largest entry of the row in which a sweep moves another.
const sweepLargest = 2.5

// checkReach compares the largest entries of a swept row, one of each sign, with the outermost
// levels. Where even steps would lead from there to the entry itself, and the scale follows it, the
// scale was made for it, and the grid ends too early.
func (in *instance) checkReach(x, levels []float64) {
	n := len(levels)
	if n < 4 {
		return
	}
	step := (levels[n-1] - levels[0]) / float64(n-1)
	for i, l := range levels {
		if math.Abs(l-levels[0]-float64(i)*step) > 1e-6*step {
			return // levels of other distances
		}
	}
	row, _ := swept(in, x, 0)
	value, d := in.quantize(row).value, in.shape[1]
	twice := slices.Clone(row)
	twice[d+13], twice[d+14] = 2*row[d+13], 2*row[d+14]
	doubled := in.quantize(twice).value
	for _, at := range []int{d + 13, d + 14} {
		missing := math.Abs(row[at]-value[at]) / step
		follows := math.Abs(doubled[at]-2*value[at]) <= 1e-6*step
		if k := math.Round(missing); follows && k >= 1 && k <= 2 && math.Abs(missing-k) < 1e-6 {
			in.t.announce()
			f := in.given(row).element(fmt.Sprintf("the largest entry of its row, %v steps of the scale, is clipped to %v: is the bound off by one? (if it is meant, %s)",
				math.Round(math.Abs(row[at])/step), math.Round(math.Abs(value[at])/step), claim(sdk.ClaimAnyRounding)), at, in.shape, value)
			in.t.add(f)
			return
		}
	}
}

// nearest is the nearest level for each place; of two that are equally near, it is the
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

// Bounds on the error of a matrix of uniform numbers, which has no outliers to clip. The error
// of a row is at most rowFactor times that of the median row, or rowError if that is larger,
// because one rotated entry may be clipped. With the default settings at most biasPart of the
// error is bias, and values shrink or grow by a factor from least to greatest.
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
			t.run(func() {
				r := rand.New(rand.NewPCG(9, 1))
				x := draw(func() float64 { return 2*r.Float64() - 1 }, s.shape)
				in := s.instance(t, Oracle{}, x)
				value := in.quantize(x).value
				t.announce()
				relative := in.rowErrors(x, value)
				if i == 0 {
					t.notef("error %.3g of the norm", relative)
				}
				if len(v.changed) == 0 { // a person may choose a coarse or an unsigned grid
					in.bias(x, value)
				}
			})
		}
	}
}

// rowErrors compares the rows with each other and returns the error of the median
// row, relative to its norm.
func (in *instance) rowErrors(x, value []float64) float64 {
	errs := make([]float64, errorRows)
	for i := range errs {
		from, to := i*errorWidth, (i+1)*errorWidth
		errs[i] = relativeError(value[from:to], x[from:to])
	}
	median := slices.Sorted(slices.Values(errs))[errorRows/2]
	for i, e := range errs {
		if !(e <= max(rowFactor*median, rowError)) {
			in.t.failf(in.at(), "the error of row %d is %.3g of its norm, that of the median row %.3g", i, e, median)
			break
		}
	}
	return median
}

func (in *instance) bias(x, value []float64) {
	e := axpy(value, -1, x)
	mean := floats.Sum(e) / float64(len(e))
	if rms := rootMeanSquare(e); math.Abs(mean) > biasPart*rms {
		in.t.failf(in.at(), "the mean of Q(x) − x is %.3g, its root mean square %.3g: the rounding is biased", mean, rms)
	}
	if g := floats.Dot(x, value) / floats.Dot(x, x); !(g > least && g < greatest) {
		in.t.failf(in.at(), "Q(x) is %.3g times x in the mean: the scale is wrong", g)
	}
}
