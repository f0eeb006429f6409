package scaling

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/schema"
)

// Fit is the fitted law, with its efficiencies and the quality of the fit.
type Fit struct {
	Law       Law    `json:"law"`
	Reference *Group `json:"reference,omitempty"` // the group with eff = 1; nil if A was given
	// Parameters holds A, alpha, B, beta and E, in this order.
	Parameters []Estimate   `json:"parameters"`
	Effs       []Efficiency `json:"efficiencies"` // the reference, then the others by descending bits
	Points     []Point      `json:"points"`
	Residuals  []float64    `json:"residuals"` // log L − log L̂ of each point
	Cost       float64      `json:"cost"`      // the minimized function: residuals and priors
	RMS        float64      `json:"rms"`       // root mean square of the residuals
	// Starts is the number of starting points. From the Finished best of them, the search continued to
	// convergence, and Agree of these reached the lowest cost.
	Starts     int      `json:"starts"`
	Finished   int      `json:"finished"`
	Agree      int      `json:"agree"`
	Level      float64  `json:"level"`      // confidence level of the intervals
	Replicates int      `json:"replicates"` // of the bootstrap; 0: intervals of the linearized law
	Warnings   []string `json:"warnings,omitempty"`
}

// Interval is an estimate with its confidence interval; Low and High equal Value if none is known.
type Interval struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// Estimate is a fitted parameter with its interval.
type Estimate struct {
	Name string `json:"name"`
	Interval
	StdErr float64 `json:"std_err,omitempty"` // of the logarithm, linearized; 0: unknown
	Status Status  `json:"status"`
}

// Efficiency is the parameter efficiency of a group.
type Efficiency struct {
	Group
	Estimate
	Normalized float64 `json:"normalized"` // eff·16/P
	Points     int     `json:"points"`
	// Gain is the efficiency divided by the baseline's at the same bits, with an interval from the
	// bootstrap; nil if there is no baseline.
	Gain *Interval `json:"gain,omitempty"`
}

// Status says where a value comes from.
type Status string

// Values of [Status].
const (
	Fitted       Status = "fitted"
	Fixed        Status = "fixed"        // given, or of the reference
	Undetermined Status = "undetermined" // fitted, but hardly determined by the points
	AtBound      Status = "at bound"     // stopped at the bound of its range
)

// Run fits the law to points. The result depends only on the arguments.
func Run(ctx context.Context, points []Point, o Options) (*Fit, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	o.Huber = cmp.Or(o.Huber, math.Inf(1))
	if len(points) == 0 {
		return nil, errors.New("no points to fit")
	}
	for _, p := range points {
		if wrong := p.check(); wrong != "" {
			return nil, fmt.Errorf("%s: %s", p.Source, wrong)
		}
	}
	f, err := newFitting(points, o)
	if err != nil {
		return nil, err
	}
	all, err := f.search(ctx)
	if err != nil {
		return nil, err
	}
	fit := f.result(all)
	k := f.identify(fit, all[0].x)
	var samples [][]float64
	if o.Bootstrap > 0 && len(k.indices) > 0 && f.degreesOfFreedom() > 0 {
		if samples, err = f.bootstrap(ctx, fit, all, k); err != nil {
			return nil, err
		}
	}
	fit.Warnings = append(f.warnDesign(), f.warnUndetermined(fit, k)...)
	return fit, f.compare(fit, samples, k)
}

type fitting struct {
	options   Options
	points    []Point
	groups    []Group
	reference *Group
	index     map[Group]int // in the parameter vector; -1: the reference
	model     model
	starts    int
}

func newFitting(points []Point, o Options) (*fitting, error) {
	f := &fitting{options: o, points: points, groups: groups(points), index: map[Group]int{}}
	reference, ok, err := f.options.reference(f.groups)
	if err != nil {
		return nil, err
	}
	if ok {
		f.reference, f.index[reference] = &reference, -1
		f.groups = slices.DeleteFunc(f.groups, func(g Group) bool { return g == reference })
	}
	for i, g := range f.groups {
		f.index[g] = shared + i
	}
	m := &f.model
	m.fixed, m.prior = make([]float64, shared+len(f.groups)), o.Prior
	for j := range m.fixed {
		if j < shared {
			if v, held := o.Fixed[names[j]]; held {
				m.fixed[j] = math.Log(v)
				continue
			}
		}
		m.free = append(m.free, j)
	}
	for _, p := range points {
		m.logN, m.logD = append(m.logN, math.Log(p.N)), append(m.logD, math.Log(p.D))
		m.logLoss, m.group = append(m.logLoss, math.Log(p.Loss)), append(m.group, f.index[p.Group])
	}
	return f, nil
}

// Limits of the search.
const (
	firstSteps  = 40   // from every starting point
	lastSteps   = 3000 // from the best results of these
	finishers   = 12
	sameCost    = 1e-6 // relative difference of costs below which two minima are the same
	startAlpha0 = 0.05 // replaces the exponent 0, which has no logarithm
)

// search minimizes from all starting points, continues from the best, and returns sorted minima.
func (f *fitting) search(ctx context.Context) ([]minimum, error) {
	starts := f.grid()
	f.starts = len(starts)
	p := f.model.problem(f.options.Huber)
	each := func(starts [][]float64, steps int) ([]minimum, error) { // in the order of starts
		out := make([]minimum, len(starts))
		return out, parallel(ctx, len(starts), func(ctx context.Context, i int) {
			out[i] = p.minimize(ctx, starts[i], steps)
		})
	}
	all, err := each(starts, firstSteps)
	if err != nil {
		return nil, err
	}
	byCost := func(a, b minimum) int { return cmp.Compare(a.cost, b.cost) }
	slices.SortStableFunc(all, byCost)
	best := lists.Map(all[:min(len(all), finishers)], func(m minimum) []float64 { return m.x })
	if all, err = each(best, lastSteps); err != nil {
		return nil, err
	}
	slices.SortStableFunc(all, byCost)
	if math.IsInf(all[0].cost, 1) {
		return nil, errors.New("the law is not finite at any starting point: check the fixed parameters")
	}
	return all, nil
}

func parallel(ctx context.Context, n int, work func(ctx context.Context, i int)) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range n {
		group.Go(func() error {
			work(ctx, i)
			return ctx.Err()
		})
	}
	return group.Wait()
}

// grid returns the starting points: the grid of Hoffmann et al. 2022 and QuEST for the shared
// parameters that are free, with efficiencies that depend on the bits.
func (f *fitting) grid() [][]float64 {
	amplitudes, exponents := []float64{5, 10, 15, 20, 25}, []float64{startAlpha0, 0.5, 1}
	values := [shared][]float64{amplitudes, exponents, amplitudes, exponents, {-1, -0.5, 0, 0.5, 1}}
	for _, j := range []int{atAlpha, atBeta} {
		values[j] = lists.Map(values[j], math.Log)
	}
	first := make([]float64, len(f.model.fixed))
	for i, g := range f.groups {
		first[shared+i] = math.Log(startEfficiency(g.Bits))
	}
	list := [][]float64{first}
	for j, choices := range values {
		if f.model.isFixed(j) {
			continue
		}
		var next [][]float64
		for _, at := range list {
			for _, v := range choices {
				at = slices.Clone(at)
				at[j] = v
				next = append(next, at)
			}
		}
		list = next
	}
	return lists.Map(list, f.model.reduce)
}

// startEfficiency returns the starting value of an efficiency: 0.1, 0.3, 0.5, 0.8 and 0.9 at 1, 2,
// 3, 4 and 8 bits, linearly interpolated in between.
func startEfficiency(bits float64) float64 {
	at := []struct{ bits, eff float64 }{
		{0, 0.05}, {1, 0.1}, {2, 0.3}, {3, 0.5}, {4, 0.8}, {8, 0.9}, {fullPrecision, 1},
	}
	for i := 1; i < len(at); i++ {
		if a, b := at[i-1], at[i]; bits <= b.bits {
			return a.eff + (b.eff-a.eff)*(bits-a.bits)/(b.bits-a.bits)
		}
	}
	return 1
}

func (f *fitting) result(all []minimum) *Fit {
	m := &f.model
	full := m.full(all[0].x)
	fit := &Fit{
		Reference: f.reference, Points: f.points, Cost: all[0].cost,
		Starts: f.starts, Finished: len(all), Level: level,
	}
	for _, other := range all {
		if other.cost <= all[0].cost*(1+sameCost) {
			fit.Agree++
		}
	}
	for j, name := range names {
		fit.Parameters = append(fit.Parameters, f.estimate(name, full, j))
	}
	p := fit.Parameters
	fit.Law = Law{p[atA].Value, p[atAlpha].Value, p[atB].Value, p[atBeta].Value, p[atE].Value}
	if f.reference != nil {
		one := Estimate{Interval: Interval{1, 1, 1}, Status: Fixed}
		fit.Effs = append(fit.Effs, f.efficiency(*f.reference, one))
	}
	for i, g := range f.groups {
		fit.Effs = append(fit.Effs, f.efficiency(g, f.estimate("", full, shared+i)))
	}
	squares, law := 0.0, curveOf(full)
	for i := range f.points {
		size, data, _ := law.terms(m, i)
		r := m.logLoss[i] - math.Log(size+data+law.floor)
		fit.Residuals = append(fit.Residuals, r)
		squares += r * r
	}
	fit.RMS = math.Sqrt(squares / float64(len(f.points)))
	return fit
}

func (f *fitting) efficiency(g Group, e Estimate) Efficiency {
	e.Name = "eff(" + g.String() + ")"
	out := Efficiency{Group: g, Estimate: e, Normalized: Normalized(e.Value, g.Bits)}
	for _, p := range f.points {
		if p.Group == g {
			out.Points++
		}
	}
	return out
}

func (f *fitting) estimate(name string, full []float64, j int) Estimate {
	v := math.Exp(full[j])
	if f.model.isFixed(j) {
		v = f.options.Fixed[name] // the number as given
	}
	e := Estimate{Name: name, Interval: Interval{v, v, v}, Status: Fitted}
	low, high := f.model.bounds()
	switch {
	case f.model.isFixed(j):
		e.Status = Fixed
	case full[j] <= low[j] || full[j] >= high[j]:
		e.Status = AtBound
	}
	return e
}

func (fit *Fit) at(j int) *Estimate {
	if j < shared {
		return &fit.Parameters[j]
	}
	if fit.Reference != nil {
		j++
	}
	return &fit.Effs[j-shared].Estimate
}

// Eff returns the efficiency of a group, or 0 if the fit does not include the group.
func (fit *Fit) Eff(g Group) float64 {
	for _, e := range fit.Effs {
		if e.Group == g {
			return e.Value
		}
	}
	return 0
}

// Default [Options].
const (
	DefaultHuber = 1e-3
	DefaultPrior = 1e-6
)

const (
	priorCenter = 0.3  // center of the priors of α and β
	level       = 0.95 // confidence level of the intervals
)

// Options are the options of [Run]. The zero value means plain least squares without priors and
// bootstrap; [Defaults] returns the defaults of `cage fit`.
type Options struct {
	// Reference names the group with eff = 1, by its method or by its String(); "" means the only
	// group with 16 bits or more.
	Reference string
	// Baseline is a method to which the efficiencies of the others are compared at equal bits; ""
	// means none.
	Baseline string
	// Fixed holds the values of shared parameters that are not fitted: "A", "alpha", "B", "beta", "E".
	Fixed map[string]float64
	// Huber is the threshold δ of the Huber loss of the residuals log L − log L̂; 0 means squares.
	Huber float64
	// Prior is the weight w of the priors w·(log α − log α₀)² + w·(log β − log β₀)², which are added
	// to the squared residuals, with α₀ = β₀ = 0.3; 0 means no priors. For residuals with standard
	// deviation σ, the priors give log α the standard deviation σ/√w.
	Prior float64
	// Bootstrap is the number of bootstrap replicates for the intervals; 0 means intervals of the
	// linearized law.
	Bootstrap int
	Seed      uint64 // seed of the bootstrap
}

// Defaults returns the default options of `cage fit`.
func Defaults() Options {
	return Options{Huber: DefaultHuber, Prior: DefaultPrior, Bootstrap: 1000}
}

// Check returns an error if an option is invalid.
func (o Options) Check() error {
	switch {
	case !(o.Huber >= 0):
		return fmt.Errorf("huber threshold %v; want 0 or more", o.Huber)
	case !(o.Prior >= 0) || math.IsInf(o.Prior, 1):
		return fmt.Errorf("weight of the priors %v; want 0 or more", o.Prior)
	case o.Bootstrap < 0:
		return fmt.Errorf("%d bootstrap replicates; want 0 or more", o.Bootstrap)
	}
	for name, v := range o.Fixed {
		if !slices.Contains(names[:], name) {
			return fmt.Errorf("no parameter %q to fix; want one of %s", name, strings.Join(names[:], ", "))
		}
		zero := name == "B" || name == "E" // 0 removes the term
		if !(v > 0 || zero && v == 0) || math.IsInf(v, 1) {
			return fmt.Errorf("%s fixed at %v; want a number above 0 (B and E may be 0)", name, v)
		}
	}
	return nil
}

// reference chooses the group with eff = 1. The second result is false if there is no reference,
// which is allowed if A is given.
func (o Options) reference(all []Group) (Group, bool, error) {
	var found []Group
	for _, g := range all {
		if g.String() == o.Reference {
			return g, true, nil
		}
		is := g.Method == o.Reference
		if o.Reference == "" {
			is = g.Bits >= fullPrecision
		}
		if is {
			found = append(found, g)
		}
	}
	_, given := o.Fixed["A"]
	switch {
	case len(found) == 1:
		return found[0], true, nil
	case len(found) > 1:
		return Group{}, false, fmt.Errorf("several groups could be the reference with eff = 1: %s; "+
			"name one of them", quotedGroups(found))
	case o.Reference != "":
		return Group{}, false, fmt.Errorf("no reference %q; there are %s", o.Reference, quotedGroups(all))
	case given:
		return Group{}, false, nil
	}
	return Group{}, false, fmt.Errorf("no reference: no points of 16 bits or more, and without "+
		"a method with eff = 1, the efficiencies and A are not separable; there are %s: "+
		"name one of them, or fix A",
		quotedGroups(all))
}

func quotedGroups(all []Group) string {
	return schema.Quoted(lists.Map(all, Group.String))
}
