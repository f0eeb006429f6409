package sdktest

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// kept and keptNotes are the numbers of failures and notes of one check that a
// report holds.
const kept, keptNotes = 5, 3

// trial collects the outcome of one check while it runs.
type trial struct {
	check   Check
	skipped bool
	open    bool // whether an example was announced that has not failed yet
}

// place is where an example happens.
type place struct {
	machine  string
	role     string
	shape    []int
	settings map[string]any
	input    []float64 // x where it is known, for each element of the result
}

// on is the same place on a machine.
func (p place) on(m Machine) place {
	p.machine = m.Name()
	return p
}

func (p place) failure(message string) Failure {
	return Failure{Message: message, Machine: p.machine, Role: p.role, Shape: slices.Clone(p.shape), Settings: printable(p.settings)}
}

// element is a failure at one element of a result.
func (p place) element(message string, i int, shape []int, got []float64) Failure {
	f := p.failure(message)
	f.Index, f.Got = unravel(i, shape), number(got[i])
	if len(p.input) == len(got) {
		f.Input = number(p.input[i])
	}
	return f
}

// printable is a copy of settings that JSON can hold.
func printable(settings map[string]any) map[string]any {
	out := maps.Clone(settings)
	for name, v := range out {
		if f, ok := v.(float64); ok {
			out[name] = Number(f)
		}
	}
	return out
}

func (t *trial) failed() bool { return t.check.Failed > 0 }

// add reports a failure: of the example that was announced, or of one that is counted
// with it.
func (t *trial) add(f Failure) {
	if !t.open {
		t.check.Tried++
	}
	t.open = false
	t.check.Failed++
	if len(t.check.Failures) < kept {
		t.check.Failures = append(t.check.Failures, f)
	}
}

// tried counts one example; check it with the methods below.
func (t *trial) tried() {
	t.check.Tried++
	t.open = true
}

// failf reports an example.
func (t *trial) failf(p place, format string, args ...any) {
	t.add(p.failure(fmt.Sprintf(format, args...)))
}

// notef tells something about the check, once.
func (t *trial) notef(format string, args ...any) {
	note := fmt.Sprintf(format, args...)
	switch n := len(t.check.Notes); {
	case slices.Contains(t.check.Notes, note):
	case n < keptNotes:
		t.check.Notes = append(t.check.Notes, note)
	case n == keptNotes:
		t.check.Notes = append(t.check.Notes, "…")
	}
}

// skipf ends a check that finds nothing to do.
func (t *trial) skipf(format string, args ...any) {
	t.skipped = true
	t.notef(format, args...)
}

// ok fails the example when there is an error.
func (t *trial) ok(p place, err error) bool {
	if err != nil {
		t.failf(p, "%v", err)
	}
	return err == nil
}

// within fails the example unless each |got − want| is at most allowed, a function
// of the element; NaN goes with NaN, and an infinity with itself. It names the worst
// element.
func (t *trial) within(p place, what string, shape []int, got, want []float64, allowed func(i int) float64) bool {
	t.tried()
	if len(got) != len(want) {
		t.failf(p, "%s has %d elements, want %d", what, len(got), len(want))
		return false
	}
	worst, most := -1, 0.0
	for i := range got {
		if e := excess(got[i], want[i], allowed(i)); e > 1 && e > most {
			worst, most = i, e
		}
	}
	if worst < 0 {
		return true
	}
	f := p.element(what, worst, shape, got)
	f.Want = number(want[worst])
	t.add(f)
	return false
}

// equal is within with nothing allowed; the two zeros are equal.
func (t *trial) equal(p place, what string, shape []int, got, want []float64) bool {
	return t.within(p, what, shape, got, want, func(int) float64 { return 0 })
}

// finite fails the example at the first element that is NaN or infinite.
func (t *trial) finite(p place, what string, shape []int, got []float64) bool {
	t.tried()
	for i, v := range got {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			t.add(p.element(what+" is not finite", i, shape, got))
			return false
		}
	}
	return true
}

// excess is |got − want| in units of what is allowed.
func excess(got, want, allowed float64) float64 {
	d := distance(got, want)
	switch {
	case d == 0:
		return 0
	case allowed == 0:
		return math.Inf(1)
	}
	return d / allowed
}

// distance is |x − y|: 0 for NaN and NaN, infinite for NaN and a number.
func distance(x, y float64) float64 {
	switch {
	case x == y, math.IsNaN(x) && math.IsNaN(y):
		return 0
	case math.IsNaN(x), math.IsNaN(y):
		return math.Inf(1)
	}
	return math.Abs(x - y)
}

// unravel turns a row-major offset into one index for each axis.
func unravel(offset int, shape []int) []int {
	index := make([]int, len(shape))
	for axis := len(shape) - 1; axis >= 0; axis-- {
		index[axis] = offset % shape[axis]
		offset /= shape[axis]
	}
	return index
}

// result is the finished check.
func (t *trial) result() Check {
	switch {
	case t.failed():
		t.check.Status = Fail
	case t.skipped || t.check.Tried == 0:
		t.check.Status = Skip
	default:
		t.check.Status = Pass
	}
	return t.check
}
