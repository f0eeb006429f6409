package sdktest

import (
	"fmt"
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// checks are all checks of optimizers, in the order of the report.
func (o *optimizerRun) checks() []step {
	return []step{
		{"parameters", "each value in a declared range, alone and with others, gives valid " +
			"programs or an error that says what to do", o.checkParameters, ""},
		{"shapes", "valid programs for every shape of an accepted tensor", o.checkShapes, ""},
		{"parts", "valid programs, and finite directions, for weights that hold several " +
			"matrices", o.checkParts, ""},
		{"selection", "some tensor is accepted, and acceptance depends on role and shape alone",
			o.checkSelection, ""},
		{"deterministic", "the same request gives the same programs, and the same programs the " +
			"same bits", o.everywhere(o.checkDeterministic), ""},
		{"zero gradient", "a gradient of zeros from the start gives finite directions and " +
			"states", o.checkZeroGradient, ""},
		{"decay", "without a gradient the direction is not in proportion to x: the decay of " +
			"weights is the host's", o.checkDecay, ""},
		{"names", "programs do not depend on the name of the tensor", o.checkNames, ""},
		{"correction", "the correction of averages for their start counts updates from 1",
			o.byDefault(o.checkCorrection), "no update reads the step"},
		{"finite", "gradients from 1e-12 to 1e6 give finite directions and states",
			o.everywhere(o.checkFinite), ""},
		{"conditions", "a rate of 0, a loss of 0 and a run of one step give finite directions " +
			"and states; a rate of its own is finite, not negative, and 0 where the schedule's " +
			"is 0", o.everywhere(o.checkConditions), "no program reads rate, steps or loss"},
		{"collection", "what is collected is finite, is read by another program, and depends on " +
			"the tensor", o.everywhere(o.checkCollection), "nothing is collected"},
		{"probe", "offsets are finite and not all zero, and the second gradient has an effect " +
			"on the directions", o.everywhere(o.checkProbe), "none is due"},
		{"evaluation", "the weights to evaluate with are x before the first update, and as long " +
			"as x stays where it is; later they are finite",
			o.everywhere(o.checkEvaluation), "it is x"},
		{"state", "every state tensor is changed by updates, unless it keeps something of x, " +
			"and what it holds has an effect", o.checkState, "no state"},
		{"storage", "what is returned for state that is kept as integers is integers in the " +
			"range", o.everywhere(o.checkStorage), "no state is kept as integers"},
		{"checkpoint", "a state that went through binary32 goes on as before",
			o.checkCheckpoint, "no state"},
		{"retry", "an opaque update goes by its inputs alone, changes nothing that it reads, " +
			"and writes the same when it is asked again or beside others",
			o.byDefault(o.checkRetry), "the optimizer is a program"},
		{"refresh", "a refresh runs when it is due and has an effect on the directions",
			o.onOracle(o.checkRefresh), "none is due"},
		{"parabola", "x − α·u descends on an ill-conditioned parabola with some rate",
			func(t *trial) { o.checkDescent(t, parabola, 300, 0.05) }, ""},
		{"rosenbrock", "x − α·u descends along Rosenbrock's valley with some rate",
			// The goal is near: the valley begins at 0.17 times the first value.
			func(t *trial) { o.checkDescent(t, rosenbrock, 2000, 0.15) }, ""},
		{"devices", "compiled programs agree with the oracle in every step", o.checkDevices, ""},
	}
}

func newOptimizerRun(subject OptimizerSubject, list []Option) *session {
	s, ok := newSession(sdk.KindOptimizer, subject.Describe, list)
	if ok {
		o := &optimizerRun{session: s, subject: subject, asked: map[string]*tensorAnswer{}, diverging: map[string]bool{}}
		s.addSteps(o.checks(), o.goldenCase)
	}
	return s
}

func (o *optimizerRun) checkParameters(t *trial) {
	var refused refusals
	variants := slices.Concat(o.space.singles, o.space.mixed)
	for i, v := range variants {
		t.announce()
		list, err := o.accepted(v)
		switch {
		case len(list) > 0:
			o.tryOut(t, list[0], i == 0)
		case err != nil:
			if i == 0 || !isRefusal(err) {
				t.ok(example{settings: v.changed}, err)
			}
			refused.add(err)
		}
	}
	refused.note(t, len(variants), "settings")
}

// tryOut takes a few steps. With settings at the end of a range an algorithm may well
// diverge: the report says so, and no other check tries them. The defaults must not
// diverge.
func (o *optimizerRun) tryOut(t *trial, s *tensorAnswer, byDefault bool) {
	steps := &trial{}
	for _, size := range sizes {
		s.walk(steps, Oracle{}, 3, size)
	}
	switch {
	case !steps.failed():
	case byDefault:
		t.add(steps.check.Failures[0])
	default:
		t.notef("not finite with %s", settingsText(s.settings))
		o.diverging[settingsText(s.settings)] = true
	}
}

// walk takes steps with random gradients of the given size and asks for finite
// directions and states. It returns the last direction, nil if something is wrong.
func (s *tensorAnswer) walk(t *trial, m Machine, steps int, size float64) (u []float64) {
	t.announce()
	t.run(func() {
		r := s.train(t, m)
		for r.updates < steps {
			last := r.update(r.x, rounded(scaled(size, r.gradient(20))))
			if !r.checkFinite(last) {
				return
			}
			if r.updates == steps {
				u = last
			}
		}
	})
	return u
}

func (r *training) checkFinite(u []float64) bool {
	for name, v := range inOrder(r.state) {
		if !r.t.finite(r.at(), fmt.Sprintf("%s after update %d", name, r.updates), v.Type.Shape, v.Floats) {
			return false
		}
	}
	return r.t.finite(r.at(), fmt.Sprintf("direction of update %d", r.updates), r.shape, u)
}

func (o *optimizerRun) checkShapes(t *trial) {
	shapes := map[sdk.TensorRole][][]int{sdk.TensorVector: {{1}, {3}, {33}, {640}}}
	for _, role := range []sdk.TensorRole{sdk.TensorMatrix, sdk.TensorEmbedding, sdk.TensorHead} {
		for _, d := range []int{1, 3, 32, 33, 64} {
			shapes[role] = append(shapes[role], []int{1, d}, []int{7, d}, []int{d, 7})
		}
	}
	var refused refusals
	for _, role := range []sdk.TensorRole{sdk.TensorMatrix, sdk.TensorVector, sdk.TensorEmbedding, sdk.TensorHead} {
		declined := 0
		for _, shape := range shapes[role] {
			s, err := o.ask(o.space.singles[0], role, shape...)
			switch {
			case isRefusal(err) && len(s.settings) > 0: // settings that a person chose need not go with every shape
				refused.add(err)
			case err != nil:
				t.ok(s.example, err)
			case s.Accepts:
				s.walk(t, Oracle{}, 2, 1)
			default:
				declined++
			}
		}
		if declined > 0 {
			t.notef("%d of %d of role %s declined", declined, len(shapes[role]), role)
		}
	}
	refused.note(t, t.check.Tried+refused.count, "shapes")
}

// fusedRows are the rows of the matrices that fused weights hold: with as many heads of
// keys and values as of queries, and with fewer.
var fusedRows = [][]int{{4, 4, 4}, {8, 2, 2}}

func (o *optimizerRun) checkParts(t *trial) {
	var refused refusals
	for _, v := range o.space.core() {
		for _, rows := range fusedRows {
			plain, err := o.ask(v, sdk.TensorMatrix, rows[0]+rows[1]+rows[2], 6)
			if err != nil || o.diverging[settingsText(v.changed)] {
				continue // the checks of plain matrices report this
			}
			s := &tensorAnswer{variant: v, example: plain.example}
			err = o.answer(s, v, sdk.TensorMatrix, "layers.0.qkv", s.shape,
				sdk.Part{Name: "q", Rows: rows[0]}, sdk.Part{Name: "k", First: rows[0], Rows: rows[1]},
				sdk.Part{Name: "v", First: rows[0] + rows[1], Rows: rows[2]})
			switch {
			case isRefusal(err) && len(s.settings) > 0: // settings that a person chose need not go with every weight
				refused.add(err)
			case err != nil:
				t.ok(s.example, fmt.Errorf("with parts of %v rows: %w", rows, err))
			case s.Accepts != plain.Accepts:
				t.failf(s.example, "accepted: %v in parts of %v rows, %v as one matrix", s.Accepts, rows, plain.Accepts)
			case s.Accepts:
				s.walk(t, Oracle{}, 2, 1)
			}
		}
	}
	refused.note(t, t.check.Tried+refused.count, "fused weights")
}

// checkSelection asks for tensors that differ in their names alone.
func (o *optimizerRun) checkSelection(t *trial) {
	accepted := 0
	for _, k := range tensorKinds {
		t.announce()
		e := example{role: string(k.role), shape: k.shape}
		of := map[bool]int{}
		for _, name := range []string{"layers.0.wq", "layers.11.mlp.down", "x"} {
			out, err := o.programs(o.space.singles[0], k.role, name, k.shape)
			t.must(e, err)
			of[out.Accepts]++
		}
		if len(of) > 1 {
			t.failf(e, "accepted under one name and declined under another")
		}
		accepted += min(of[true], 1)
	}
	if accepted == 0 {
		t.failf(example{}, "no tensor is accepted, of any role")
	}
	t.notef("%d of %d kinds of tensors accepted", accepted, len(tensorKinds))
}

func (o *optimizerRun) checkDeterministic(t *trial, s *tensorAnswer, m Machine) {
	t.announce()
	again, err := o.programs(s.variant, sdk.TensorRole(s.role), "layers.0.wq", s.shape)
	if t.ok(s.example, err) {
		samePrograms(t, s.example, s.Programs(), again.Programs())
		if again.Due != s.Due {
			t.failf(s.example, "a second request gives refreshes at %+v, the first at %+v", again.Due, s.Due)
		}
	}
	first, second := s.walk(t, m, 3, 1), s.walk(t, m, 3, 1)
	t.equal(s.on(m), "direction of a second run", s.shape, second, first)
}

func (o *optimizerRun) checkZeroGradient(t *trial) {
	moves := false
	o.everywhere(func(_ *trial, s *tensorAnswer, m Machine) {
		zeros := make([]float64, s.size())
		r := s.train(t, m)
		for range min(max(3, s.Due.Next+1), 12) {
			u := r.update(r.x, zeros)
			if !r.checkFinite(u) {
				return
			}
			moves = moves || largest(u) > 0
			if s.variant.claims(sdk.ClaimStill) {
				t.equal(r.at(), fmt.Sprintf("direction of update %d without a gradient, which still claims to be zero,", r.updates), s.shape, u, zeros)
			}
		}
	})(t)
	if moves {
		t.notef("the direction is not always zero")
	}
}

// sizes are root mean squares of gradients, from far below to far above what occurs in training.
var sizes = []float64{1e-12, 1e-3, 1, 1e6}

func (o *optimizerRun) checkFinite(t *trial, s *tensorAnswer, m Machine) {
	for _, size := range sizes {
		s.walk(t, m, min(max(4, s.Due.First+2), 24), size) // past the first refresh
	}
}

// checkConditions tries what may occur at the ends of a run: a schedule that begins or ends with
// a rate of 0, a loss of 0, one step in all.
func (o *optimizerRun) checkConditions(t *trial, s *tensorAnswer, m Machine) {
	if s.Rate == nil && !slices.ContainsFunc([]string{spec.InputRate, spec.InputSteps, spec.InputLoss}, s.Reads) {
		return
	}
	for _, c := range []conditions{s.ordinary(), {0, 100, 2}, {0.01, 100, 0}, {0.01, 1, 2}} {
		t.announce()
		r := s.train(t, m)
		for range 3 {
			r.conditions = c
			if !r.checkFinite(r.next(20)) {
				return
			}
			switch {
			case s.Rate == nil:
			case math.IsNaN(r.rate-r.rate) || r.rate < 0:
				t.failf(r.at(), "the optimizer's own rate of update %d is %v", r.updates, r.rate)
				return
			case r.schedule == 0 && r.rate != 0:
				t.failf(r.at(), "the optimizer's own rate of update %d is %v, but the schedule's is 0: multiply by the input rate", r.updates, r.rate)
				return
			}
			r.conditions = s.ordinary() // what one of them has left in the state
			if !r.checkFinite(r.next(20)) {
				return
			}
		}
	}
}

func (o *optimizerRun) checkEvaluation(t *trial, s *tensorAnswer, m Machine) {
	if s.Evaluate == nil {
		return
	}
	near := func(what string, r *training) {
		w, err := r.evaluated(r.x)
		t.must(r.at(), err)
		t.within(r.at(), what, r.shape, w, r.x, upTo(1e-5*largest(r.x)))
	}
	r := s.train(t, m)
	near("what is evaluated before the first update", r)
	for range 4 {
		r.next(20)
		w, err := r.evaluated(r.x)
		t.must(r.at(), err)
		if !t.finite(r.at(), fmt.Sprintf("what is evaluated after update %d", r.updates), r.shape, w) {
			return
		}
	}
	still := s.train(t, m)
	still.schedule = 0 // x does not move
	for range 4 {
		still.update(still.x, make([]float64, s.size()))
	}
	near("what is evaluated after 4 updates without a gradient, with a rate of 0,", still)
}

func (o *optimizerRun) checkCollection(t *trial, s *tensorAnswer, m Machine) {
	names, err := s.Collected()
	t.must(s.example, err)
	for _, name := range names {
		t.announce()
		if !slices.ContainsFunc([]*program.Program{s.Update, s.Observe, s.Optimizer.Rate, s.Probe}, func(p *program.Program) bool { return p != nil && p.Input(spec.GlobalPrefix+name) >= 0 }) {
			t.failf(s.example, "%s is collected, but no program reads its sum: use in.Global[%[1]q]", name)
		}
	}
	if len(names) == 0 {
		return
	}
	varied := map[string]bool{}
	for _, size := range sizes {
		r := s.train(t, m)
		var first map[string]reference.Tensor
		for range 4 {
			r.update(r.x, rounded(scaled(size, r.gradient(20))))
			r.x = axpy(r.x, -max(r.rate, 0.01), normal(uint64(21+r.updates), s.shape...)) // whatever direction and rate are
			if first == nil {
				first = r.sums
			}
			for name, sum := range r.sums {
				if !t.finite(r.at(), fmt.Sprintf("%s before update %d", name, r.updates), nil, sum.Floats) {
					return
				}
				varied[name] = varied[name] || sum.Floats[0] != first[name].Floats[0]
			}
		}
	}
	for _, name := range names {
		if !varied[spec.GlobalPrefix+name] {
			t.failf(s.example, "%s is the same for every gradient and every x", name)
		}
	}
}

// checkProbe looks at where second gradients are taken, and at what becomes of them.
func (o *optimizerRun) checkProbe(t *trial, s *tensorAnswer, m Machine) {
	if s.ProbeDue.First == 0 || s.ProbeDue.First > s.horizon() {
		return
	}
	t.announce()
	t.notef("due at %d, %d, every %d", s.ProbeDue.First, s.ProbeDue.Next, s.ProbeDue.Every)
	some := false
	for _, size := range sizes {
		r := s.train(t, m)
		for range s.ProbeDue.First + 2 {
			u := r.update(r.x, rounded(scaled(size, r.gradient(20))))
			if !t.finite(r.at(), fmt.Sprintf("the offset before update %d", r.updates), s.shape, r.offset) {
				return
			}
			some = some || slices.ContainsFunc(r.offset, func(p float64) bool { return p != 0 })
			r.move(u)
		}
	}
	if len(s.variant.changed) > 0 { // which may well switch probes off
		return
	}
	if !some && !s.Sampled {
		t.failf(s.example, "every offset is zero: there is nothing to learn from a second gradient at x")
		return
	}
	for _, size := range []float64{1, 1e-3} { // directions may be clipped where gradients are large
		r := s.train(t, m)
		r.gradients = size
		other := r.fork()
		other.disturb = func(probed []float64) {
			for i := range probed {
				probed[i] = 2*probed[i] + 0.5
			}
		}
		if r.differs(other, 70) {
			return
		}
	}
	t.failf(s.example, "the second gradient has no effect on %d directions", s.horizon())
}
