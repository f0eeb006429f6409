// Package sdktest is the conformance kit: it checks that a plugin does what the
// interface promises, whatever its algorithm and its language. In the plugin's own
// tests it takes one line,
//
//	func TestConformance(t *testing.T) { sdktest.Quantizer(t, absmax{}) }
//
// and the command "cage plugins test NAME" runs the same checks on the executable of any plugin,
// and also runs the programs on a device. A plugin that passes keeps every promise that can be
// tested without knowing its algorithm; values of another implementation ([Golden]) test the
// algorithm.
//
// Programs run on the reference implementation and on the machines that the caller adds. A device
// computes in binary32, and its results differ by rounding errors. The kit finds out how
// much they may differ: it changes the inputs by a few units in the last place and looks
// at how far the results move. So no author has to give a tolerance.
//
// A run of the kit is a session: a list of steps, each with a trial that collects what
// failed. The tables in quantizer.go and optimizer.go name all checks; each file has
// checks that belong together. The package knows no host and no device.
package sdktest

import (
	"cmp"
	"fmt"
	"maps"
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
	// answered counts the answers of the plugin that checks have looked at, each as often as it
	// was.
	answered int
}

// step is a check that is still to be run, with its name and what it asks.
type step struct {
	name, asks string
	run        func(*trial)
	// untried is why a check that has tried nothing is skipped; empty leaves it to the check.
	untried string
}

// newSession asks for the description, and makes checking it the first step. ok is false
// if the description is wrong: then there are no other steps.
func newSession(kind sdk.Kind, describe func() (sdk.Description, error), list []Option) (s *session, ok bool) {
	s = &session{options: options{settings: map[string]any{}, machines: []Machine{Oracle{}}}}
	for _, apply := range list {
		apply(&s.options)
	}
	var err error
	if s.about, err = describe(); err == nil {
		s.about.Claims = slices.Concat(s.about.Claims, s.claims)
		if err = cmp.Or(s.about.Check(), checkClaims(s.about, kind)); err == nil {
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
	const asks = "the description is well formed, defaults lie in their ranges, claims are those of the kind, and the settings given are accepted"
	s.steps = []step{{name: "description", asks: asks, run: func(t *trial) {
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

func checkClaims(d sdk.Description, kind sdk.Kind) error {
	for _, c := range d.Claims {
		if names := sdk.ClaimNames(kind); !slices.Contains(names, c.Name) {
			return fmt.Errorf("the claim %s is none of a plugin of the kind %s: there are %q",
				c.Name, kind, names)
		}
	}
	return nil
}

func (s *session) addSteps(checks []step, golden func(goldenTrial)) {
	s.steps = append(s.steps, checks...)
	for _, v := range s.golden {
		s.steps = append(s.steps, goldenStep(v, s.report.Kind, golden))
	}
}

func (s *session) do(c step) Check {
	before := s.answered
	t := &trial{check: Check{Name: c.name, Asks: c.asks}, built: func() int { return s.answered - before }}
	func() {
		defer func() {
			if r := recover(); r != nil {
				t.failf(example{}, "panic: %v", r)
			}
		}()
		t.run(func() { c.run(t) })
		if c.untried != "" && !t.skipped {
			t.skipUntried(c.untried)
		}
	}()
	return t.result()
}

func (s *session) all() Report {
	for _, step := range s.steps {
		s.report.Checks = append(s.report.Checks, s.do(step))
	}
	return s.report
}

func (s *session) test(t *testing.T) {
	for _, step := range s.steps {
		t.Run(strings.ReplaceAll(step.name, " ", "-"), func(t *testing.T) {
			c := s.do(step)
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
}

// Option is a choice of the caller.
type Option func(*options)

type options struct {
	settings map[string]any
	claims   []sdk.Claim // added to those of the description, in tests of the kit
	machines []Machine
	golden   []Values
	// defaultsOnly leaves the parameters that the caller has not fixed at their defaults.
	defaultsOnly bool
}

// With fixes parameters of the plugin, in all checks.
func With(settings map[string]any) Option {
	return func(o *options) { maps.Copy(o.settings, settings) }
}

// On adds machines on which programs run, besides the reference implementation.
func On(machines ...Machine) Option {
	return func(o *options) { o.machines = append(o.machines, machines...) }
}

// Golden adds the values of an independent implementation. On a machine in binary32, an element may
// go either way if noise of a few units in the last place moves it.
func Golden(v Values) Option { return func(o *options) { o.golden = append(o.golden, v) } }
