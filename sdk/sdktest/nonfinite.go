package sdktest

import (
	"fmt"
	"math"
	"slices"
)

// influence marks the elements whose value changes when element j of x takes other
// finite values: those that share a scale with it, or are mixed with it by a rotation.
// It is found on the oracle. On a coarse grid the code of an element may be zero, and its
// value with it, whatever the scale. So it is also looked for where all elements are as
// large as the largest, of which no grid can make zeros: for an unsigned one, where they
// are positive.
func (in *instance) influence(x []float64, j int) ([]bool, error) {
	shared := make([]bool, len(x))
	shared[j] = true
	most := largest(x)
	for _, x := range [][]float64{x, full(most, len(x)), full(-most, len(x))} {
		if err := in.mark(shared, x, j, most); err != nil {
			return nil, err
		}
	}
	return shared, nil
}

// mark adds what element j influences in one matrix.
func (in *instance) mark(shared []bool, x []float64, j int, most float64) error {
	on := &instance{site: in.site, m: oracle{}, trained: in.trained}
	base, err := on.quantize(x)
	if err != nil {
		return err
	}
	for _, factor := range []float64{0, 3, 50, -777.7} {
		if !slices.Contains(shared, false) {
			return nil
		}
		out, err := on.quantize(with(x, j, factor*most))
		if err != nil {
			return err
		}
		for i := range shared {
			shared[i] = shared[i] || out.value[i] != base.value[i]
		}
	}
	return nil
}

// hull fills the gaps between the marks of each row: an element that happens to keep
// its value may still share the scale of those around it.
func hull(marks []bool, d int) []bool {
	out := make([]bool, len(marks))
	for row := 0; row < len(marks); row += d {
		first := slices.Index(marks[row:row+d], true)
		if first < 0 {
			continue
		}
		last := d - 1
		for !marks[row+last] {
			last--
		}
		for i := first; i <= last; i++ {
			out[row+i] = true
		}
	}
	return out
}

// bulky is a matrix like x without small entries, so that the codes of coarse grids
// are not zero.
func bulky(x []float64) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(float32(math.Copysign(0.5+0.5*math.Abs(math.Tanh(v)), v)))
	}
	return out
}

// poisoning is one matrix, in which element at is made NaN or infinite.
type poisoning struct {
	in       *instance
	x        []float64
	at       int
	shared   []bool // by the element, while it is finite
	base     answer
	gradient []float64 // of the matrix as it is
	dy       []float64
}

func (q *quantizerRun) checkNonFinite(t *trial) {
	q.each(t, q.machines, func(in *instance, x []float64) {
		p := poisoning{x: bulky(x), at: len(x)/2 - len(x)/2%in.shape[1] + in.shape[1]/2, dy: normal(3, in.shape...)}
		var err error
		if p.in, err = in.instance(in.m, p.x); !t.ok(in.at(), err) {
			return
		}
		if p.base, err = p.in.quantize(p.x); !t.ok(in.at(), err) {
			return
		}
		if p.gradient, err = p.in.byX(p.x, p.dy); !t.ok(in.at(), err) {
			return
		}
		if p.shared, err = p.in.influence(p.x, p.at); !t.ok(in.at(), err) {
			return
		}
		marks, ok := p.check(t, math.NaN())
		if !ok {
			return
		}
		for _, bad := range []float64{math.Inf(1), math.Inf(-1)} {
			if other, ok := p.check(t, bad); ok && !slices.Equal(other, marks) {
				t.failf(in.at(), "%v and NaN at %v make different elements NaN", bad, unravel(p.at, in.shape))
			}
		}
		p.checkPartition(t, marks)
	})
}

// check poisons with one number and returns which values became NaN.
func (p poisoning) check(t *trial, bad float64) (marks []bool, ok bool) {
	w := p.in.at()
	out, err := p.in.quantize(with(p.x, p.at, bad))
	if !t.ok(w, err) {
		return nil, false
	}
	marks = make([]bool, len(p.x))
	for i, v := range out.value {
		marks[i] = math.IsNaN(v)
	}
	what := fmt.Sprintf("with %v at %v, ", bad, unravel(p.at, p.in.shape))
	if !p.extent(t, what, marks) {
		return marks, false
	}
	ok = t.equal(w, what+"value", p.in.shape, out.value, p.masked(p.base.value, marks, math.NaN()))
	if out.codes != nil {
		ok = t.equal(w, what+"code", p.in.shape, out.codes, p.masked(p.base.codes, marks, 0)) && ok
	}
	if out.mask != nil {
		ok = t.equal(w, what+"mask", p.in.shape, out.mask, p.masked(p.base.mask, marks, 0)) && ok
	}
	got, err := p.in.byX(with(p.x, p.at, bad), p.dy)
	if !t.ok(w, err) {
		return marks, false
	}
	if out.mask != nil {
		return marks, t.equal(w, what+"gradient", p.in.shape, got, p.masked(p.gradient, marks, 0)) && ok
	}
	return marks, t.finite(w, what+"gradient", p.in.shape, got) && ok
}

// masked is v with another value at the marks.
func (p poisoning) masked(v []float64, marks []bool, at float64) []float64 {
	out := slices.Clone(v)
	for i, m := range marks {
		if m {
			out[i] = at
		}
	}
	return out
}

// extent compares the elements that became NaN with those that the poisoned one
// influences when it is finite.
func (p poisoning) extent(t *trial, what string, marks []bool) bool {
	t.tried()
	fail := func(i int, message string) bool {
		f := p.in.at().failure(what + message)
		f.Index, f.Input = unravel(i, p.in.shape), number(p.x[i])
		t.add(f)
		return false
	}
	if !marks[p.at] {
		return fail(p.at, "the value there is not NaN")
	}
	if p.in.Init != nil {
		return true // a trained scale is not moved by the data
	}
	reach := hull(p.shared, p.in.shape[1])
	for i := range marks {
		switch {
		case p.shared[i] && !marks[i]:
			return fail(i, "a value that depends on it through its scale is not NaN")
		case marks[i] && !reach[i]:
			return fail(i, "a value that does not depend on it is NaN")
		}
	}
	return true
}

// checkPartition poisons another element of the same group, which has to give the
// same group.
func (p poisoning) checkPartition(t *trial, marks []bool) {
	for i, m := range slices.Backward(marks) {
		if !m || i == p.at {
			continue
		}
		p.at = i
		var err error
		if p.shared, err = p.in.influence(p.x, i); !t.ok(p.in.at(), err) {
			return
		}
		if other, ok := p.check(t, math.NaN()); ok && !slices.Equal(other, marks) {
			t.failf(p.in.at(), "NaN at %v makes other elements NaN than one that shares its scale", unravel(i, p.in.shape))
		}
		return
	}
}
