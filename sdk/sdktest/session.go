package sdktest

import (
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/sdk"
)

// Quantizer runs all checks on q, each as a subtest. In short mode (go test -short),
// parameters that no option fixes keep their defaults.
func Quantizer(t *testing.T, q sdk.Quantizer, list ...Option) {
	t.Helper()
	newQuantizerRun(NewQuantizer(q), inTest(list)).test(t)
}

// Optimizer runs all checks on o, each as a subtest. In short mode (go test -short),
// parameters that no option fixes keep their defaults.
func Optimizer(t *testing.T, o sdk.Optimizer, list ...Option) {
	t.Helper()
	newOptimizerRun(NewOptimizer(o), inTest(list)).test(t)
}

func inTest(list []Option) []Option {
	return append(slices.Clone(list), func(o *options) { o.defaultsOnly = testing.Short() })
}

// CheckQuantizer runs all checks on a quantizer.
func CheckQuantizer(subject QuantizerSubject, list ...Option) Report {
	return newQuantizerRun(subject, list).all()
}

// CheckOptimizer runs all checks on an optimizer.
func CheckOptimizer(subject OptimizerSubject, list ...Option) Report {
	return newOptimizerRun(subject, list).all()
}

// session is one run of the kit on a plugin: a list of steps, each of which becomes a
// check of the report, or a subtest.
type session struct {
	options
	about  sdk.Description
	space  space
	report Report
	steps  []step
	// measure fills in the measures at the end; nil if the description is wrong.
	measure func()
}

// step is a check that is still to be run, with its name and what it asks.
type step struct {
	name, asks string
	run        func(*trial)
}

// newSession asks for the description, and makes checking it the first step. ok is false
// if the description is wrong: then there are no other steps.
func newSession(kind sdk.Kind, describe func() (sdk.Description, error), list []Option) (s *session, ok bool) {
	s = &session{options: newOptions(list)}
	var err error
	if s.about, err = describe(); err == nil {
		if err = s.about.Check(); err == nil {
			s.space, err = newSpace(s.about, s.settings)
			if s.defaultsOnly && err == nil {
				s.space = space{singles: s.space.singles[:1]}
			}
		}
	}
	s.report = Report{Plugin: s.about.Name, Version: s.about.Version, Kind: kind, Settings: printable(s.settings)}
	for _, m := range s.machines {
		s.report.Machines = append(s.report.Machines, m.Name())
	}
	const asks = "the description is well formed, defaults lie in their ranges, and the settings given are accepted"
	s.steps = []step{{"description", asks, func(t *trial) {
		t.announce()
		t.ok(example{}, err)
		if s.about.Doc == "" {
			t.notef("it has no doc")
		}
		for _, p := range s.about.Parameters {
			if p.Doc == "" {
				t.notef("parameter %s has no doc", p.Name)
			}
		}
	}}}
	return s, err == nil
}

// addSteps adds the checks of a kind of plugin, and those of values of other implementations.
func (s *session) addSteps(checks []step, golden func(goldenCase)) {
	s.steps = append(s.steps, checks...)
	for _, v := range s.golden {
		s.steps = append(s.steps, goldenStep(v, s.report.Kind, golden))
	}
}

// do runs a step. A panic, for example of the plugin's code, fails it.
func (s step) do() Check {
	t := &trial{check: Check{Name: s.name, Asks: s.asks}}
	func() {
		defer func() {
			if r := recover(); r != nil {
				t.failf(example{}, "panic: %v", r)
			}
		}()
		t.run(func() { s.run(t) })
	}()
	return t.result()
}

// all runs the steps one after the other.
func (s *session) all() Report {
	for _, step := range s.steps {
		s.report.Checks = append(s.report.Checks, step.do())
	}
	if s.measure != nil {
		s.measure()
	}
	return s.report
}

// test runs the steps as subtests, and logs the measures.
func (s *session) test(t *testing.T) {
	for _, step := range s.steps {
		t.Run(strings.ReplaceAll(step.name, " ", "-"), func(t *testing.T) {
			c := step.do()
			if c.Status == Fail {
				t.Errorf("%d of %d; asked: %s", c.Failed, c.Tried, c.Asks)
			}
			for _, f := range c.Failures {
				t.Error(f)
			}
			if notes := strings.Join(c.Notes, "; "); c.Status == Skip {
				t.Skip(notes)
			} else if notes != "" {
				t.Log(notes)
			}
		})
	}
	if s.measure == nil {
		return
	}
	s.measure()
	for _, m := range s.report.Measures {
		t.Logf("%s: %s %s", m.Name, m.Value, m.Unit)
	}
}
