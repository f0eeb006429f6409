// Package sdktest is the conformance kit: it checks that a plugin fulfils the contract of its
// interface, whatever its algorithm and language. In the plugin's own tests it takes one line,
//
//	func TestConformance(t *testing.T) { sdktest.Quantizer(t, absmax{}) }
//
// and the command "cage plugins test NAME" runs the same checks on the executable of any plugin,
// also with its programs on a device. A plugin that passes fulfils every requirement that can be
// tested without knowledge of its algorithm; reference values of another implementation ([Golden])
// test the algorithm.
//
// Programs run on the reference implementation, in binary64, and on machines added by the caller. A
// device computes in binary32, so its results have rounding errors. The kit estimates their
// tolerance: it perturbs the inputs by a few ulps and measures the change of the results.
//
// The tables in quantizer.go and optimizer.go list all checks.
package sdktest

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
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

// Subject is a plugin under test, in this process or another. It returns a [spec.Quantizer] for an
// [sdk.Site], or a [spec.Optimizer] for an [sdk.Tensor].
type Subject[Question, Answer any] struct {
	Describe func() (sdk.Description, error)
	// Programs returns the validated programs of a site or tensor. An error that wraps
	// [*sdk.Refusal] means that the plugin does not support the settings or the shape; any other
	// error is a failure of the plugin.
	Programs func(Question) (Answer, error)
	// Step computes an update of an opaque optimizer; nil for plugins that return programs.
	Step func(Question, sdk.OpaqueStep) error
	// Search searches for the state of a site; nil for quantizers that do not search.
	Search func(Question, sdk.SearchInput) error
}

// QuantizerSubject is a quantizer under test.
type QuantizerSubject = Subject[sdk.Site, spec.Quantizer]

// OptimizerSubject is an optimizer under test.
type OptimizerSubject = Subject[sdk.Tensor, spec.Optimizer]

// NewQuantizer returns the subject for a quantizer in this process. Its programs must satisfy the
// limits of a host.
func NewQuantizer(q sdk.Quantizer) QuantizerSubject {
	return QuantizerSubject{
		Search: func(site sdk.Site, in sdk.SearchInput) error {
			return q.(sdk.Searcher).Search(in, site) // called only if its programs declare a search
		},
		Describe: func() (sdk.Description, error) { return describe(q.Describe) },
		Programs: func(site sdk.Site) (spec.Quantizer, error) {
			out, err := sdk.BuildQuantizer(q, site)
			if err == nil {
				err = within(spec.SiteLimits(site.Shape), out.Programs())
			}
			return out, err
		},
	}
}

// NewOptimizer returns the subject for an optimizer in this process; see [NewQuantizer].
func NewOptimizer(o sdk.Optimizer) OptimizerSubject {
	return OptimizerSubject{
		Step: func(tensor sdk.Tensor, in sdk.OpaqueStep) error {
			return o.(sdk.OpaqueOptimizer).Step(in, tensor) // the type that sdk.Opaque returns
		},
		Describe: func() (sdk.Description, error) { return describe(o.Describe) },
		Programs: func(tensor sdk.Tensor) (spec.Optimizer, error) {
			out, err := sdk.BuildOptimizer(o, tensor)
			if err == nil {
				err = within(spec.TensorLimits(tensor.Shape), out.Programs())
			}
			return out, err
		},
	}
}

// within checks programs against limits, except that factorizations are allowed.
func within(limits program.Limits, programs iter.Seq2[string, *program.Program]) error {
	limits.Linalg = true
	for name, p := range programs {
		if err := p.Validate(limits); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func describe(f func() sdk.Description) (d sdk.Description, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic in Describe: %v", r)
		}
	}()
	return f(), nil
}

// tensors are inputs or outputs of a program, by name.
type tensors = map[string]reference.Tensor

// Machine executes programs: the reference implementation, or a host's device in binary32.
type Machine interface {
	// Name returns the machine's name in the report, such as "cpu".
	Name() string
	// Run executes a valid program without factorizations. Inputs and outputs are indexed by name.
	// Float inputs are rounded to the machine's precision.
	Run(p *program.Program, inputs tensors) (tensors, error)
}

// Reference executes programs in binary64 with package reference.
type Reference struct{}

// Name implements [Machine].
func (Reference) Name() string { return "reference" }

// Run implements [Machine].
func (Reference) Run(p *program.Program, in tensors) (tensors, error) {
	return reference.Run(p, in)
}

// session is a run of the kit on a plugin.
type session struct {
	options
	about    sdk.Description
	space    space
	report   Report
	checks   []check
	answered int // number of the plugin's answers that checks have used
}

// check is a check to run; it becomes a [Check] of the report, or a subtest.
type check struct {
	name, asks string
	run        func(*trial)
	skipReason string // why the check is skipped if it has no example
}

// newSession requests the description, which is the first check. ok is false if the description is
// invalid; then there are no other checks.
func newSession(kind sdk.Kind, describe func() (sdk.Description, error),
	list []Option) (s *session, ok bool) {
	s = &session{options: options{settings: map[string]any{}, machines: []Machine{Reference{}}}}
	for _, apply := range list {
		apply(&s.options)
	}
	var err error
	if s.about, err = describe(); err == nil {
		s.about.Claims = slices.Concat(s.about.Claims, s.claims)
		err = s.about.Check()
		for _, c := range s.about.Claims {
			if names := sdk.ClaimNames(kind); !slices.Contains(names, c.Name) {
				err = cmp.Or(err, fmt.Errorf("the claim %s is not for a %s: want one of %q", c.Name, kind,
					names))
			}
		}
		if err == nil {
			s.space, err = newSpace(s.about, s.settings)
		}
		if s.defaultsOnly && err == nil {
			s.space = space{variants: s.space.variants[:1]}
		}
	}
	s.report = Report{Plugin: s.about.Name, Version: s.about.Version, Kind: kind,
		Settings: printable(s.settings)}
	for _, m := range s.machines {
		s.report.Machines = append(s.report.Machines, m.Name())
	}
	s.checks = []check{{"description", "the description is well formed, defaults are in range, " +
		"claims are those of the kind, and the settings given are accepted", func(t *trial) {
		t.begin()
		t.ok(example{}, err)
		if s.about.Doc == "" {
			t.notef("Doc is empty")
		}
		for _, p := range s.about.Parameters {
			if p.Doc == "" {
				t.notef("parameter %s has no doc", p.Name)
			}
		}
	}, ""}}
	return s, err == nil
}

func (s *session) do(c check) Check {
	t, before := &trial{check: Check{Name: c.name, Asks: c.asks}, until: s.until}, s.answered
	if s.until != nil && s.until.Err() != nil {
		t.check.Status = Skip
		t.notef("%v", s.until.Err())
		return t.check
	}
	func() {
		defer func() {
			if r := recover(); r != nil {
				t.failf(example{}, "panic: %v", r)
			}
		}()
		t.run(func() { c.run(t) })
	}()
	explained := len(t.check.Notes) > 0
	if t.refused > 0 {
		t.notef("%d requests refused, the first with: %v", t.refused, t.refusal)
	}
	switch {
	case t.check.Failed > 0:
		t.check.Status = Fail
	case t.skipped:
		t.check.Status = Skip
	case t.check.Tried == 0:
		t.check.Status = Skip
		if s.answered == before {
			t.notef("not tested: the plugin refused or failed to write all programs")
		} else if !explained && c.skipReason != "" {
			t.notef("%s", c.skipReason)
		}
	default:
		t.check.Status = Pass
	}
	return t.check
}

func (s *session) all() Report {
	for _, c := range s.checks {
		s.report.Checks = append(s.report.Checks, s.do(c))
	}
	return s.report
}

func (s *session) test(t *testing.T) {
	for _, c := range s.checks {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			c := s.do(c)
			if c.Status == Fail {
				t.Errorf("%d of %d; required: %s", c.Failed, c.Tried, c.Asks)
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

// Option configures the checks.
type Option func(*options)

type options struct {
	settings map[string]any
	claims   []sdk.Claim // in addition to those in the description; for tests of the kit
	machines []Machine
	golden   []Values
	until    context.Context // nil: the checks are not interrupted
	// defaultsOnly keeps parameters that the caller has not fixed at their defaults.
	defaultsOnly bool
}

// With fixes parameters of the plugin in all checks.
func With(settings map[string]any) Option {
	return func(o *options) { maps.Copy(o.settings, settings) }
}

// Until ends the checks when ctx ends: the rest is skipped, so that the report is incomplete.
func Until(ctx context.Context) Option { return func(o *options) { o.until = ctx } }

// On adds machines that run programs, in addition to the reference implementation.
func On(machines ...Machine) Option {
	return func(o *options) { o.machines = append(o.machines, machines...) }
}

// Golden adds values from an independent implementation, which the reference implementation must
// give. For the inputs of a quantizer, other machines must agree with it up to rounding errors.
func Golden(v Values) Option { return func(o *options) { o.golden = append(o.golden, v) } }

const maxExhaustive = 9 // largest number of values of an integer parameter that are all tried

// variant is a combination of settings: all values, and those that are not defaults.
type variant struct {
	values  sdk.Values
	changed map[string]any
	about   sdk.Description
}

func (v variant) claims(name sdk.ClaimName) bool {
	_, ok := v.about.Claimed(name, v.values)
	return ok
}

// space holds the settings that the kit tries.
type space struct {
	// variants begins with the defaults, followed by one variant for each other value of one
	// parameter.
	variants []variant
	claimed  []variant // the variants under which the plugin makes a claim
	random   []variant // random combinations
}

// core returns the settings for most checks: all variants and some random combinations.
func (s space) core() []variant {
	return slices.Concat(s.variants, s.random[:min(8, len(s.random))])
}

func newSpace(d sdk.Description, given map[string]any) (s space, err error) {
	with := func(set func(settings map[string]any)) variant {
		settings := maps.Clone(given)
		set(settings)
		v, e := newVariant(d, settings)
		if err == nil && e != nil {
			err = fmt.Errorf("a value in the declared range is invalid: %w", e)
		}
		return v
	}
	base, err := newVariant(d, given)
	if err != nil {
		return s, err
	}
	s.variants = []variant{base}
	var free []sdk.Parameter
	for _, p := range d.Parameters {
		if _, fixed := given[p.Name]; fixed {
			continue
		}
		free = append(free, p)
		for _, v := range samples(p)[1:] {
			s.variants = append(s.variants, with(func(settings map[string]any) { settings[p.Name] = v }))
		}
	}
	for _, c := range d.Claims {
		v := with(func(settings map[string]any) {
			for name, v := range c.When {
				if _, fixed := given[name]; !fixed {
					settings[name] = v
				}
			}
		})
		if len(c.When) > 0 && v.claims(c.Name) && len(v.changed) > len(base.changed) {
			s.variants, s.claimed = append(s.variants, v), append(s.claimed, v)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 24 {
		if len(free) < 2 {
			break
		}
		s.random = append(s.random, with(func(settings map[string]any) {
			for _, p := range free {
				list := samples(p)
				settings[p.Name] = list[r.IntN(len(list))]
			}
		}))
	}
	return s, err
}

func newVariant(d sdk.Description, settings map[string]any) (variant, error) {
	values, err := d.Resolve(settings)
	if err != nil {
		return variant{}, err
	}
	v := variant{values: values, changed: map[string]any{}, about: d}
	for _, p := range d.Parameters {
		if got := values.Map()[p.Name]; got != p.Default {
			v.changed[p.Name] = got
		}
	}
	return v, nil
}

// samples returns the values to try for a parameter, starting with the default: every choice, both
// ends of a range, and a value beyond the default if the range is unbounded.
func samples(p sdk.Parameter) []any {
	list := []any{p.Default}
	add := func(v any) {
		if !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	def, _ := p.Convert(p.Default) // cannot fail: the check of the description has converted it
	switch {
	case p.Type == sdk.TypeBool:
		add(true)
		add(false)
	case p.Type == sdk.TypeString:
		for _, c := range p.Choices {
			add(c)
		}
	case p.Type == sdk.TypeInt && p.Max-p.Min < maxExhaustive:
		for i := range int(p.Max-p.Min) + 1 { // incrementing a float64 has no effect above 2⁵³
			add(int(p.Min) + i)
		}
	case p.Type == sdk.TypeInt:
		lo, hi := ends(p, float64(def.(int)))
		add(int(lo))
		add(int(hi))
	case p.Type == sdk.TypeFloat:
		lo, hi := ends(p, def.(float64))
		add(lo)
		add(hi)
	}
	return list
}

// ends returns the bounds of a range. An infinite or nearly infinite bound is replaced by a number
// beyond the default, but within the range.
func ends(p sdk.Parameter, def float64) (lo, hi float64) {
	const open = 1 << 31
	lo, hi = p.Min, p.Max
	if lo < -open {
		lo = math.Max(p.Min, math.Min(-2*math.Abs(def)-1, hi))
	}
	if hi > open {
		hi = math.Min(p.Max, math.Max(2*math.Abs(def)+1, lo))
	}
	return lo, hi
}
