package sdktest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"gonum.org/v1/gonum/floats"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// maxFailures and maxNotes limit the failures and notes of one check in a report.
const maxFailures, maxNotes = 5, 3

// trial collects the outcome of a check while it runs.
type trial struct {
	check   Check
	skipped bool
	open    bool  // whether the last begun example has not failed yet
	refused int   // number of requests that the plugin legitimately refused
	refusal error // the first refusal, shown so that a person can judge its message
	until   context.Context
}

// example describes what is tested: the machine, the site or tensor, the settings and the input.
type example struct {
	machine  string
	role     string
	shape    []int
	settings map[string]any
	input    []float64 // x, if each element of the result has one
}

func (e example) on(m Machine) example {
	e.machine = m.Name()
	return e
}

func (e example) size() int { return int(program.FloatType(e.shape...).Size()) }

func (e example) failure(message string) Failure {
	return Failure{Message: message, Machine: e.machine, Role: e.role, Shape: slices.Clone(e.shape),
		Settings: printable(e.settings)}
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

// add reports a failure of the current example. Each further failure in it counts as
// another example.
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

// begin starts an example, to be checked with the methods below, unless the checks are to end.
func (t *trial) begin() {
	if t.until != nil && t.until.Err() != nil {
		panic(stopped{})
	}
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

// stopped is the panic value of [trial.must] and [trial.begin].
type stopped struct{}

// must fails the example if err is not nil, and then returns from the enclosing [trial.run], as
// Fatal ends a test.
func (t *trial) must(e example, err error) {
	if !t.ok(e, err) {
		panic(stopped{})
	}
}

// run calls f; it returns when f returns, [trial.must] fails or the checks are to end.
func (t *trial) run(f func()) {
	defer func() {
		r := recover()
		if _, ok := r.(stopped); r != nil && !ok {
			panic(r)
		}
	}()
	f()
}

// notef adds a note to the report, without duplicates.
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

const noDevice = "not requested: there is no device to compare with the reference"

func claim(name sdk.ClaimName) string { return "claim " + string(name) }

// within fails the example unless |got − want| is at most allowed(i) for each element i. NaN equals
// NaN, and an infinity equals itself. The failure reports the worst element.
func (t *trial) within(e example, what string, shape []int, got, want []float64,
	allowed func(i int) float64) bool {
	t.begin()
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

// tolerance returns abs + rel·|want|, or 0 if want is NaN or infinite: [trial.within] would accept
// any value if that much were allowed.
func tolerance(abs, rel, want float64) float64 {
	if math.IsNaN(want - want) {
		return 0
	}
	return abs + rel*math.Abs(want)
}

// equal fails the example unless got and want are equal; −0 is equal to 0.
func (t *trial) equal(e example, what string, shape []int, got, want []float64) bool {
	return t.within(e, what, shape, got, want, upTo(0))
}

// finite fails the example if any element is NaN or infinite; it reports the first.
func (t *trial) finite(e example, what string, shape []int, got []float64) bool {
	t.begin()
	i := slices.IndexFunc(got, func(v float64) bool { return math.IsNaN(v - v) })
	if i >= 0 {
		t.add(e.element(what+" is not finite", i, shape, got))
	}
	return i < 0
}

func isRefusal(err error) bool {
	_, ok := errors.AsType[*sdk.Refusal](err)
	return ok
}

// refuse counts err if it is a refusal, which is allowed here; any other error fails the example.
func (t *trial) refuse(e example, err error) {
	if !isRefusal(err) {
		t.ok(e, err)
		return
	}
	t.refused++
	t.refusal = cmp.Or(t.refusal, err)
}

// distance returns |x − y|: 0 if both are NaN or the same infinity, infinite if only one is NaN.
func distance(x, y float64) float64 {
	switch {
	case x == y, math.IsNaN(x) && math.IsNaN(y):
		return 0
	case math.IsNaN(x), math.IsNaN(y):
		return math.Inf(1)
	}
	return math.Abs(x - y)
}

// largest returns the largest finite magnitude, or 0 if there is none.
func largest(data []float64) float64 {
	most := 0.0
	for _, v := range data {
		if a := math.Abs(v); a > most && !math.IsInf(a, 0) {
			most = a
		}
	}
	return most
}

func unravel(offset int, shape []int) []int {
	index := make([]int, len(shape))
	for axis, d := range slices.Backward(shape) {
		index[axis] = offset % d
		offset /= d
	}
	return index
}

// normal returns a row-major array of seeded standard normal numbers, rounded to binary32 so that
// every machine gets the same values.
func normal(seed uint64, shape ...int) []float64 {
	return draw(rand.New(rand.NewPCG(seed, 0)).NormFloat64, shape)
}

func draw(next func() float64, shape []int) []float64 {
	out := make([]float64, program.FloatType(shape...).Size())
	return mapped(out, func(float64) float64 { return float64(float32(next())) })
}

func mapped(v []float64, f func(float64) float64) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = f(x)
	}
	return out
}

func full(v float64, n int) []float64 { return slices.Repeat([]float64{v}, n) }

// inOrder iterates over a map by ascending key, so that reports are deterministic.
func inOrder[V any](m map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			if !yield(name, m[name]) {
				return
			}
		}
	}
}

func scaled(c float64, v []float64) []float64 {
	return floats.ScaleTo(make([]float64, len(v)), c, v)
}

func axpy(x []float64, c float64, y []float64) []float64 {
	return floats.AddScaledTo(make([]float64, len(x)), x, c, y)
}

func with(v []float64, i int, x float64) []float64 {
	out := slices.Clone(v)
	out[i] = x
	return out
}

func rounded(v []float64) []float64 {
	return mapped(v, func(x float64) float64 { return float64(float32(x)) })
}

func rootMeanSquare(v []float64) float64 { return floats.Norm(v, 2) / math.Sqrt(float64(len(v))) }

func relativeError(got, x []float64) float64 {
	return rootMeanSquare(axpy(got, -1, x)) / rootMeanSquare(x)
}

func unwritten(n int) []float32 { return slices.Repeat([]float32{float32(math.NaN())}, n) }

func converted[To, From float32 | float64](v []From) []To {
	out := make([]To, len(v))
	for i, x := range v {
		out[i] = To(x)
	}
	return out
}

// The rest of this file checks the calls of plugins that compute in their own process: quantizers
// that search for state, and opaque optimizers. Tensors are binary32 on every machine.

// processCall is a call with its read-only tensors and the tensors that it must write, by name. The
// tensors to write are filled with NaN before the call.
type processCall struct {
	reads, writes map[string][]float32
	run           func() error
}

// repeatable makes a call, repeats it after calling between, and then repeats it concurrently.
// Results may depend only on inputs, since hosts repeat calls after a crash. It returns the first
// call.
func (t *trial) repeatable(at example, what string, call func() processCall,
	between func()) processCall {
	first := call()
	t.must(at, first.run())
	same := func(when string, got processCall) {
		for name, want := range inOrder(first.writes) {
			t.equal(at, name+" of "+what+" that is "+when+",", []int{len(want)},
				converted[float64](got.writes[name]), converted[float64](want))
		}
	}
	between()
	again := call()
	for _, list := range again.writes {
		copy(list, slices.Repeat([]float32{7}, len(list)))
	}
	t.must(at, again.run())
	same("repeated, after another tensor", again)
	for name, want := range inOrder(call().reads) {
		t.equal(at, name+", which is read-only, after "+what+",", []int{len(want)},
			converted[float64](again.reads[name]), converted[float64](want))
	}
	var all sync.WaitGroup
	calls, errs := []processCall{call(), call(), call(), call()}, make([]error, 4)
	for i, c := range calls {
		all.Go(func() { errs[i] = c.run() })
	}
	all.Wait()
	for i, c := range calls {
		t.must(at, errs[i])
		same("run concurrently", c)
	}
	return first
}

func add(to map[string][]float32, prefix string, from map[string][]float32) {
	for name, v := range from {
		to[prefix+name] = v
	}
}

const maxSteps = 1 << 40

func (in *instance) searchInput(x []float64) sdk.SearchInput {
	s := sdk.SearchInput{X: converted[float32](x), Step: in.step * in.SearchEvery, Steps: maxSteps,
		Trained: map[string][]float32{}, State: map[string][]float32{}, Next: map[string][]float32{}}
	for _, t := range in.Trained {
		s.Trained[t.Name] = converted[float32](in.memory[spec.TrainedPrefix+t.Name].Floats)
	}
	for _, t := range in.State {
		s.State[t.Name] = converted[float32](in.memory[spec.KeptPrefix+t.Name].Floats)
		s.Next[t.Name] = unwritten(len(s.State[t.Name]))
	}
	return s
}

func (q *quantizerRun) checkSearch(t *trial, in *instance, x []float64) {
	if in.SearchEvery == 0 || in.evaluates {
		return
	}
	in = in.advance(scaled(1.25, x)) // with state that a search has returned
	first := t.repeatable(in.at(), "a search", func() processCall {
		s := in.searchInput(x)
		c := processCall{map[string][]float32{"X": s.X}, map[string][]float32{}, nil}
		c.run = func() error { return in.subject.Search(in.site, s) }
		add(c.reads, "Trained ", s.Trained)
		add(c.reads, "State ", s.State)
		add(c.writes, "state ", s.Next)
		return c
	}, func() { in.from(normal(77, in.shape...)) })
	for name, v := range inOrder(first.writes) {
		t.finite(in.at(), name+", which a search must write,", []int{len(v)}, converted[float64](v))
	}
}

func (o *optimizerRun) checkRetry(t *trial, s *tensorAnswer) {
	if !s.Opaque {
		return
	}
	r, other := s.train(t, Reference{}), s.train(t, Reference{})
	for range 3 {
		r.next(20)
	}
	g := r.gradient(20)
	t.repeatable(s.example, "an update", func() processCall {
		in := r.opaqueStep(r.x, g)
		c := processCall{map[string][]float32{"X": in.X, "Gradient": in.Gradient},
			map[string][]float32{"direction": in.Direction}, nil}
		c.run = func() error { return s.subject.Step(s.tensor, in) }
		add(c.reads, "State ", in.State)
		add(c.writes, "next state ", in.Next)
		return c
	}, func() { other.next(30) })
}
