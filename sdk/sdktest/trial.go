package sdktest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// maxFailures and maxNotes are the numbers of failures and notes of one check that a
// report holds.
const maxFailures, maxNotes = 5, 3

// trial collects the outcome of one check while it runs.
type trial struct {
	check   Check
	skipped bool
	open    bool  // whether an example was announced that has not failed yet
	refused int   // how many requests the plugin refused, as it may
	refusal error // the first of them, so that a person can see whether it says what to do
}

// example says what is tried: where, and on which input.
type example struct {
	machine  string
	role     string
	shape    []int
	settings map[string]any
	input    []float64 // x, if it is known for each element of the result
}

func (e example) on(m Machine) example {
	e.machine = m.Name()
	return e
}

func (e example) size() int { return int(program.FloatType(e.shape...).Size()) }

func (e example) failure(message string) Failure {
	return Failure{Message: message, Machine: e.machine, Role: e.role, Shape: slices.Clone(e.shape), Settings: printable(e.settings)}
}

func (e example) element(message string, i int, shape []int, got []float64) Failure {
	f := e.failure(message)
	f.Index, f.Got = unravel(i, shape), number(got[i])
	if len(e.input) == len(got) {
		f.Input = number(e.input[i])
	}
	return f
}

func printable(settings map[string]any) map[string]any {
	out := maps.Clone(settings)
	for name, v := range out {
		if f, ok := v.(float64); ok {
			out[name] = Number(f)
		}
	}
	return out
}

// add reports a failure of the example that was announced last. Further failures of
// the same example count as examples of their own.
func (t *trial) add(f Failure) {
	if !t.open {
		t.check.Tried++
	}
	t.open = false
	t.check.Failed++
	if len(t.check.Failures) < maxFailures {
		t.check.Failures = append(t.check.Failures, f)
	}
}

// announce begins one example; check it with the methods below.
func (t *trial) announce() {
	t.check.Tried++
	t.open = true
}

func (t *trial) failf(e example, format string, args ...any) {
	t.add(e.failure(fmt.Sprintf(format, args...)))
}

func (t *trial) ok(e example, err error) bool {
	if err != nil {
		t.failf(e, "%v", err)
	}
	return err == nil
}

// stopped is what [trial.must] panics with.
type stopped struct{}

// must fails the example when there is an error, and ends what [trial.run] runs, as
// Fatal ends a test.
func (t *trial) must(e example, err error) {
	if !t.ok(e, err) {
		panic(stopped{})
	}
}

// run calls f and returns when f does, or when [trial.must] ends it.
func (t *trial) run(f func()) {
	defer func() {
		r := recover()
		if _, ok := r.(stopped); r != nil && !ok {
			panic(r)
		}
	}()
	f()
}

// notef adds a remark to the report. The same remark is added only once.
func (t *trial) notef(format string, args ...any) {
	note := fmt.Sprintf(format, args...)
	switch n := len(t.check.Notes); {
	case slices.Contains(t.check.Notes, note):
	case n < maxNotes:
		t.check.Notes = append(t.check.Notes, note)
	case n == maxNotes:
		t.check.Notes = append(t.check.Notes, "…")
	}
}

func (t *trial) skipf(format string, args ...any) {
	t.skipped = true
	t.notef(format, args...)
}

func claim(name sdk.ClaimName) string { return "claim " + string(name) }

// within fails the example unless each |got − want| is at most allowed, a function
// of the element. NaN is equal to NaN, and an infinity to itself. The failure names
// the worst element.
func (t *trial) within(e example, what string, shape []int, got, want []float64, allowed func(i int) float64) bool {
	t.announce()
	if len(got) != len(want) {
		t.failf(e, "%s has %d elements, want %d", what, len(got), len(want))
		return false
	}
	worst, most := -1, 1.0
	for i := range got {
		d := distance(got[i], want[i])
		if d != 0 && d/allowed(i) > most {
			worst, most = i, d/allowed(i)
		}
	}
	if worst < 0 {
		return true
	}
	f := e.element(what, worst, shape, got)
	f.Want = number(want[worst])
	t.add(f)
	return false
}

func upTo(d float64) func(int) float64 { return func(int) float64 { return d } }

// equal fails the example unless got and want are equal; −0 is equal to 0.
func (t *trial) equal(e example, what string, shape []int, got, want []float64) bool {
	return t.within(e, what, shape, got, want, upTo(0))
}

// finite fails the example at the first element that is NaN or infinite.
func (t *trial) finite(e example, what string, shape []int, got []float64) bool {
	t.announce()
	i := slices.IndexFunc(got, func(v float64) bool { return math.IsNaN(v - v) })
	if i >= 0 {
		t.add(e.element(what+" is not finite", i, shape, got))
	}
	return i < 0
}

// isRefusal reports whether an error is a refusal.
func isRefusal(err error) bool {
	_, ok := errors.AsType[*sdk.Refusal](err)
	return ok
}

// refuse counts an error that is a refusal where the plugin may refuse; any other one fails the
// example.
func (t *trial) refuse(e example, err error) {
	if !isRefusal(err) {
		t.ok(e, err)
	}
	t.refused++
	t.refusal = cmp.Or(t.refusal, err)
}
