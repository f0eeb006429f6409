package sdktest

import (
	"fmt"
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk"
)

// optimizerCheck is one named check of optimizers.
type optimizerCheck struct {
	name, asks string
	run        func(*optimizerRun, *trial)
}

// optimizerChecks are all checks of optimizers, in the order of the report.
var optimizerChecks = []optimizerCheck{
	{"parameters", "each value in a declared range, alone and with others, gives valid programs or an error that says what to do", (*optimizerRun).checkParameters},
	{"shapes", "valid programs for every shape of an accepted tensor", (*optimizerRun).checkShapes},
	{"selection", "some tensor is accepted, and acceptance depends on role and shape alone", (*optimizerRun).checkSelection},
	{"deterministic", "the same request gives the same programs, and the same programs the same bits", (*optimizerRun).checkDeterministic},
	{"zero gradient", "a gradient of zeros from the start gives finite directions and states", (*optimizerRun).checkZeroGradient},
	{"finite", "gradients from 1e-12 to 1e6 give finite directions and states", (*optimizerRun).checkFinite},
	{"state", "every state tensor is changed by updates, and what it holds has an effect", (*optimizerRun).checkState},
	{"checkpoint", "a state that went through binary32 goes on as before", (*optimizerRun).checkCheckpoint},
	{"refresh", "a refresh runs when it is due and has an effect on the directions", (*optimizerRun).checkRefresh},
	{"parabola", "x − α·u descends on an ill-conditioned parabola with some rate", (*optimizerRun).checkParabola},
	{"rosenbrock", "x − α·u descends along Rosenbrock's valley with some rate", (*optimizerRun).checkRosenbrock},
	{"devices", "compiled programs agree with the oracle in every step", (*optimizerRun).checkDevices},
}

// CheckOptimizer runs all checks on an optimizer.
func CheckOptimizer(subject OptimizerSubject, list ...Option) Report {
	return runAll(newOptimizerSession(subject, list))
}

func newOptimizerSession(subject OptimizerSubject, list []Option) *session {
	o := &optimizerRun{options: newOptions(list), subject: subject, tensors: map[string]*tensor{}, refused: map[string]error{}, diverging: map[string]bool{}}
	var err error
	if o.about, err = subject.Describe(); err == nil {
		if err = o.about.Check(); err == nil {
			o.space, err = newSpace(o.about, o.settings)
		}
	}
	s := &session{report: o.options.report(o.about, sdk.KindOptimizer)}
	s.steps = []step{describedStep(o.about, err)}
	if err != nil {
		return s
	}
	for _, c := range optimizerChecks {
		s.steps = append(s.steps, step{c.name, c.asks, func(t *trial) { c.run(o, t) }})
	}
	for _, file := range o.golden {
		s.steps = append(s.steps, o.goldenSteps(file)...)
	}
	s.measure = o.measure
	return s
}

// checkParameters builds every variant, and takes a few steps with it.
func (o *optimizerRun) checkParameters(t *trial) {
	var refused refusals
	variants := slices.Concat(o.space.singles, o.space.mixed)
	for i, v := range variants {
		t.tried()
		s, err := o.accepted(v)
		if err != nil {
			if i == 0 || !isRefusal(err) {
				t.ok(place{settings: v.changed}, err)
			}
			refused.add(err)
			continue
		}
		if s != nil {
			o.tryOut(t, s, i == 0)
		}
	}
	refused.note(t, len(variants), "settings")
}

// tryOut takes a few steps. Coefficients at the end of a range may well make an
// algorithm diverge, which is told and ends the trials with them; the defaults must
// not.
func (o *optimizerRun) tryOut(t *trial, s *tensor, byDefault bool) {
	steps := &trial{}
	for _, size := range sizes {
		o.walk(steps, s, oracle{}, 3, size)
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
// directions and states. It returns the last direction.
func (o *optimizerRun) walk(t *trial, s *tensor, m Machine, steps int, size float64) []float64 {
	t.tried()
	x := normal(11, s.shape...)
	p, err := s.start(m, x)
	var u []float64
	for i := 0; i < steps && err == nil; i++ {
		u, err = p.step(x, single(scaled(size, normal(uint64(20+i), s.shape...))))
		if err == nil && !p.checkFinite(t, u) {
			return nil
		}
	}
	if !t.ok(s.on(m), err) {
		return nil
	}
	return u
}

// checkFinite looks at a direction and at the state after it.
func (p *path) checkFinite(t *trial, u []float64) bool {
	for name, v := range p.state {
		if !t.finite(p.on(p.m), fmt.Sprintf("%s after update %d", name, p.t), v.Type.Shape, v.Floats) {
			return false
		}
	}
	return t.finite(p.on(p.m), fmt.Sprintf("direction of update %d", p.t), p.shape, u)
}

func (o *optimizerRun) checkShapes(t *trial) {
	shapes := map[sdk.TensorRole][][]int{sdk.TensorVector: {{1}, {3}, {33}, {640}}}
	for _, role := range []sdk.TensorRole{sdk.TensorMatrix, sdk.TensorEmbedding, sdk.TensorHead} {
		for _, d := range []int{1, 3, 32, 33, 64} {
			shapes[role] = append(shapes[role], []int{1, d}, []int{7, d}, []int{d, 7})
		}
	}
	var refused refusals
	defer func() { refused.note(t, t.check.Tried+refused.count, "shapes") }()
	for _, role := range []sdk.TensorRole{sdk.TensorMatrix, sdk.TensorVector, sdk.TensorEmbedding, sdk.TensorHead} {
		declined := 0
		for _, shape := range shapes[role] {
			s, err := o.ask(o.space.singles[0], role, shape...)
			switch {
			case isRefusal(err) && len(s.settings) > 0: // what a person chose need not go with every shape
				refused.add(err)
			case err != nil:
				t.ok(s.place, err)
			case s.Accepts:
				o.walk(t, s, oracle{}, 2, 1)
			default:
				declined++
			}
		}
		if declined > 0 {
			t.notef("%d of %d of role %s declined", declined, len(shapes[role]), role)
		}
	}
}

// checkSelection asks for tensors that differ in their names alone.
func (o *optimizerRun) checkSelection(t *trial) {
	v, accepted := o.space.singles[0], 0
	for _, k := range tensorKinds {
		t.tried()
		var answers []bool
		for _, name := range []string{"layers.0.wq", "layers.11.mlp.down", "x"} {
			out, err := o.programs(v, k.role, name, k.shape)
			if !t.ok(place{role: string(k.role), shape: k.shape}, err) {
				return
			}
			answers = append(answers, out.Accepts)
		}
		if slices.Contains(answers, true) && slices.Contains(answers, false) {
			t.failf(place{role: string(k.role), shape: k.shape}, "accepted under one name and declined under another")
		}
		if answers[0] {
			accepted++
		}
	}
	if accepted == 0 {
		t.failf(place{}, "no tensor is accepted, of any role")
	}
	t.notef("%d of %d kinds of tensors accepted", accepted, len(tensorKinds))
}

func (o *optimizerRun) checkDeterministic(t *trial) {
	o.each(t, o.machines, func(s *tensor, m Machine) {
		t.tried()
		again, err := o.programs(s.variant, sdk.TensorRole(s.role), "layers.0.wq", s.shape)
		if t.ok(s.place, err) {
			samePrograms(t, s.place, s.Programs(), again.Programs())
			if again.Due != s.Due {
				t.failf(s.place, "a second request gives refreshes at %+v, the first at %+v", again.Due, s.Due)
			}
		}
		first, second := o.walk(t, s, m, 3, 1), o.walk(t, s, m, 3, 1)
		t.equal(s.on(m), "direction of a second run", s.shape, second, first)
	})
}

func (o *optimizerRun) checkZeroGradient(t *trial) {
	moves := false
	o.each(t, o.machines, func(s *tensor, m Machine) {
		x := normal(11, s.shape...)
		p, err := s.start(m, x)
		for i := 0; i < max(3, s.Due.Next+1) && i < 12 && err == nil; i++ {
			var u []float64
			u, err = p.step(x, make([]float64, len(x)))
			if err == nil && !p.checkFinite(t, u) {
				return
			}
			moves = moves || largest(u) > 0
			if o.traits.Still {
				t.equal(s.on(m), fmt.Sprintf("direction of update %d without a gradient", p.t), s.shape, u, make([]float64, len(x)))
			}
		}
		t.ok(s.on(m), err)
	})
	if moves {
		t.notef("the direction is not always zero")
	}
}

// sizes are root mean squares of gradients: far below and above what trainings have.
var sizes = []float64{1e-12, 1e-3, 1, 1e6}

func (o *optimizerRun) checkFinite(t *trial) {
	o.each(t, o.machines, func(s *tensor, m Machine) {
		for _, size := range sizes {
			o.walk(t, s, m, min(max(4, s.Due.First+2), 24), size) // past the first refresh
		}
	})
}

func rootMeanSquare(v []float64) float64 {
	return math.Sqrt(dotProduct(v, v) / float64(len(v)))
}
