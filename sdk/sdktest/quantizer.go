package sdktest

import (
	"slices"

	"github.com/cage-qat/cage/sdk"
)

// quantizerCheck is one named check of quantizers.
type quantizerCheck struct {
	name, asks string
	run        func(*quantizerRun, *trial)
}

// quantizerChecks are all checks of quantizers, in the order of the report.
var quantizerChecks = []quantizerCheck{
	{"parameters", "each value in a declared range, alone and with others, gives a valid program or an error that says what to do", (*quantizerRun).checkParameters},
	{"shapes", "valid programs for weights and activations of every shape; rows of a length that 32 divides cannot be refused", (*quantizerRun).checkShapes},
	{"deterministic", "the same request gives the same programs, and the same program the same bits", (*quantizerRun).checkDeterministic},
	{"zeros", "zeros stay zeros, with codes 0 and mask 1; or a level near zero where zero is none", (*quantizerRun).checkZeros},
	{"constant and tiny rows", "rows of equal, and of subnormal, numbers give finite values", (*quantizerRun).checkConstants},
	{"largest numbers", "rows of the largest binary32 numbers do no harm to others", (*quantizerRun).checkLargest},
	{"non-finite", "NaN and ±Inf make exactly what shares their scale NaN, with codes 0, mask 0 and a finite gradient", (*quantizerRun).checkNonFinite},
	{"rows", "a row has the same result alone and in a matrix, unless one scale is for the whole tensor", (*quantizerRun).checkRows},
	{"nearest", "where the levels can be seen from outside, each value goes to the nearest", (*quantizerRun).checkNearest},
	{"error", "the error is that of a quantizer: no row much worse than others, no bias, no shrinking", (*quantizerRun).checkError},
	{"fixed points", "what is on the grid stays there, where that is claimed", (*quantizerRun).checkFixed},
	{"homogeneous", "Q(c·x) = c·Q(x) where it is promised", (*quantizerRun).checkHomogeneous},
	{"gradient", "the gradient by x and by trained parameters is that of the surrogate, by central differences", (*quantizerRun).checkGradient},
	{"gradient size", "the gradient passes where the mask says so, with factor 1", (*quantizerRun).checkGradientSize},
	{"forward split", "the forward pass of training gives the bits of the value", (*quantizerRun).checkSplit},
	{"unpack", "codes and scale unpack to the value, bit for bit", (*quantizerRun).checkUnpack},
	{"trained parameters", "they start finite from any finite tensor, and do not depend on the number of rows of an activation", (*quantizerRun).checkTrained},
	{"learning", "away from their start, the gradient leads trained parameters to a smaller error, and not to a larger one", (*quantizerRun).checkLearning},
	{"devices", "compiled programs agree with the oracle: outputs, gradients, initial values", (*quantizerRun).checkDevices},
}

// CheckQuantizer runs all checks on a quantizer.
func CheckQuantizer(subject QuantizerSubject, list ...Option) Report {
	return runAll(newQuantizerSession(subject, list))
}

// session is a run of the kit as a list of steps, so that each can be a subtest.
type session struct {
	report Report
	steps  []step
	// measure fills in the measures at the end.
	measure func(*Report)
}

type step struct {
	name, asks string
	run        func(*trial)
}

// do runs a step. A panic, for example of the plugin's code, fails it.
func (s step) do() Check {
	t := &trial{check: Check{Name: s.name, Asks: s.asks}}
	func() {
		defer func() {
			if r := recover(); r != nil {
				t.failf(place{}, "panic: %v", r)
			}
		}()
		s.run(t)
	}()
	return t.result()
}

func runAll(s *session) Report {
	for _, step := range s.steps {
		s.report.Checks = append(s.report.Checks, step.do())
	}
	if s.measure != nil {
		s.measure(&s.report)
	}
	return s.report
}

const descriptionAsks = "the description is well formed, defaults lie in their ranges, and the settings given are accepted"

func newQuantizerSession(subject QuantizerSubject, list []Option) *session {
	q := &quantizerRun{options: newOptions(list), subject: subject, asked: map[string]*site{}, refused: map[string]error{}}
	var err error
	if q.about, err = subject.Describe(); err == nil {
		if err = q.about.Check(); err == nil {
			q.space, err = newSpace(q.about, q.settings)
		}
	}
	s := &session{report: q.options.report(q.about, sdk.KindQuantizer)}
	s.steps = []step{describedStep(q.about, err)}
	if err != nil {
		return s
	}
	for _, c := range quantizerChecks {
		s.steps = append(s.steps, step{c.name, c.asks, func(t *trial) { c.run(q, t) }})
	}
	for _, file := range q.golden {
		s.steps = append(s.steps, q.goldenSteps(file)...)
	}
	s.measure = q.measure
	return s
}

// describedStep checks the description; err is what is wrong with it.
func describedStep(d sdk.Description, err error) step {
	return step{"description", descriptionAsks, func(t *trial) {
		t.tried()
		t.ok(place{}, err)
		if d.Doc == "" {
			t.notef("it has no doc")
		}
		for _, p := range d.Parameters {
			if p.Doc == "" {
				t.notef("parameter %s has no doc", p.Name)
			}
		}
	}}
}

// checkParameters builds every variant for every role, and runs it once. The
// defaults must be accepted for one role.
func (q *quantizerRun) checkParameters(t *trial) {
	var refused refusals
	variants := slices.Concat(q.space.singles, q.space.mixed)
	for i, v := range variants {
		t.tried()
		var errs []error
		for _, role := range roles {
			s, err := q.ask(v, role, 4, 128)
			switch {
			case err == nil:
				q.runOnce(t, s)
			case isRefusal(err):
				errs = append(errs, err)
			default:
				t.ok(s.place, err)
			}
		}
		if len(errs) < len(roles) {
			continue
		}
		refused.add(errs[0])
		if i == 0 {
			t.ok(place{settings: v.changed}, errs[0])
		}
	}
	refused.note(t, len(variants), "settings")
}

// runOnce runs a site on the oracle and asks for finite values and the shapes of
// the signature.
func (q *quantizerRun) runOnce(t *trial, s *site) {
	x := normal(1, s.shape...)
	in, err := s.instance(oracle{}, x)
	if !t.ok(s.place, err) {
		return
	}
	out, err := in.quantize(x)
	if t.ok(s.place, err) {
		t.finite(in.given(x), "value", s.shape, out.value)
	}
}

// rowLengths are those of the shapes check, from the smallest to that of a model;
// odd ones, and those around a block of 32.
var rowLengths = []int{1, 3, 31, 32, 33, 128, 640, 1024}

func (q *quantizerRun) checkShapes(t *trial) {
	var refused refusals
	for _, role := range roles {
		if _, err := q.ask(q.space.singles[0], role, 4, 128); isRefusal(err) {
			t.notef("not for sites of the role %s", role)
			continue
		}
		for _, d := range rowLengths {
			for _, rows := range []int{1, 7} {
				s, err := q.ask(q.space.singles[0], role, rows, d)
				if err == nil {
					q.runOnce(t, s)
					continue
				}
				t.tried()
				if !isRefusal(err) || d%32 == 0 && len(s.settings) == 0 {
					t.ok(s.place, err)
				}
				refused.add(err)
			}
		}
	}
	refused.note(t, t.check.Tried, "shapes")
}

func (q *quantizerRun) checkDeterministic(t *trial) {
	for _, v := range q.space.singles {
		for _, s := range q.sites(v, matrices[0]...) {
			t.tried()
			again, err := q.programs(v, sdk.Role(s.role), matrices[0])
			if t.ok(s.place, err) {
				samePrograms(t, s.place, s.Programs(), again.Programs())
			}
		}
	}
	q.each(t, q.machines, func(in *instance, x []float64) {
		first, err := in.quantize(x)
		if !t.ok(in.at(), err) {
			return
		}
		second, err := in.quantize(x)
		if t.ok(in.at(), err) {
			t.equal(in.given(x), "value of a second run", in.shape, second.value, first.value)
		}
	})
}
