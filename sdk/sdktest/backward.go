package sdktest

import (
	"fmt"
	"maps"
	"slices"

	"gonum.org/v1/gonum/floats"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// A backward pass of the quantizer's own follows from nothing, so that there is nothing to compare
// it with. But there is what every gradient has to be: finite, zero where dy is, unless the
// quantizer has a loss of its own, and for each row its own.

func (q *quantizerRun) checkOwnBackward(t *trial, in *instance, x []float64) {
	if in.Backward == nil {
		return
	}
	n := len(x)
	zeros, dy := make([]float64, n), normal(5, in.shape...)
	sparse := slices.Clone(dy)
	for i := 0; i < n; i += 2 {
		sparse[i] = 0
	}
	for _, at := range []struct {
		what  string
		x, dy []float64
	}{
		{"", x, dy}, {" where half of dy is zero", x, sparse}, {" where dy is zero", x, zeros}, {" where x is zero", zeros, dy},
		{" where all is zero", zeros, zeros}, {" of a large dy", x, scaled(0x1p40, dy)}, {" of a small dy", x, scaled(0x1p-100, dy)},
	} {
		for name, v := range inOrder(in.from(at.x).gradient(at.x, at.dy)) {
			if !t.finite(in.at(), name+at.what, v.Type.Shape, v.Floats) {
				t.hintAtNaN(v.Floats)
			}
		}
	}
	if !in.variant.claims(sdk.ClaimOwnLoss) {
		for name, v := range inOrder(in.gradient(x, zeros)) {
			t.equal(in.at(), name+" where dy is zero (with a loss of the quantizer's own, "+claim(sdk.ClaimOwnLoss)+")", v.Type.Shape, v.Floats, make([]float64, v.Len()))
		}
	}
	if in.m == (Oracle{}) {
		t.run(func() { in.inProportion(x, dy) })
		t.run(func() { in.rowsOfGradient(x, dy) })
	}
}

// inProportion notes that a gradient, apart from what it is where dy is zero, is not in proportion
// to dy.
func (in *instance) inProportion(x, dy []float64) {
	const c = 4
	at, once, more := in.byX(x, make([]float64, len(x))), in.byX(x, dy), in.byX(x, scaled(c, dy))
	floats.Sub(once, at)
	floats.Sub(more, at)
	if floats.Distance(more, scaled(c, once), 2) > 1e-6*floats.Norm(more, 2) {
		in.t.notef("d.x is not in proportion to the magnitude of dy, which is larger in smaller micro-batches")
	}
}

// rowsOfGradient changes other rows of x and dy. If these do not share the scale of a row, its
// gradient has to stay.
func (in *instance) rowsOfGradient(x, dy []float64) {
	rows, d := in.shape[0], in.shape[1]
	if rows == 1 || slices.Contains(in.influence(x, 0)[d:], true) {
		return
	}
	base := in.byX(x, dy)
	for i := range rows {
		from, to := i*d, (i+1)*d
		others, otherDY := scaled(-3, x), scaled(-3, dy)
		copy(others[from:to], x[from:to])
		copy(otherDY[from:to], dy[from:to])
		in.t.within(in.given(x[from:to]), fmt.Sprintf("d.x of row %d among other rows of x and dy", i), []int{1, d},
			in.byX(others, otherDY)[from:to], base[from:to], upTo(0))
	}
}

func (in *instance) noisyGradients(x []float64, input string, key reference.Tensor) map[string]reference.Tensor {
	out := map[string]reference.Tensor{}
	if in.Backward == nil {
		return out
	}
	given := in.reverseInputs(in.Backward, x, normal(5, in.shape...))
	if _, ok := given[input]; ok {
		given[input] = key
	}
	maps.Copy(out, in.run(in.Backward, given))
	return out
}

// checkPasses looks at the factors with which a gradient of the quantizer's own passes for dy in
// one element at a time: about 1 in the mean, and 0 where the mask stops something and nothing is
// mixed.
func (in *instance) checkPasses(x, mask, diagonal []float64, mixes, byDefault bool) {
	passed, n := floats.Sum(diagonal), float64(len(x))
	if len(mask) > 0 {
		n = floats.Sum(mask)
	}
	if byDefault && !(passed > least*n && passed < greatest*n) {
		in.t.failf(in.at(), "the gradient passes with a factor of %.4g in the mean, want about 1; if that is meant, %s", passed/n, claim(sdk.ClaimAnyGradient))
	}
	if len(mask) == 0 || mixes {
		return
	}
	stopped := slices.Clone(diagonal)
	floats.Mul(stopped, mapped(mask, func(m float64) float64 { return 1 - m }))
	in.equal(x, "factor with which the gradient passes where the mask stops it", stopped, make([]float64, len(x)))
}
