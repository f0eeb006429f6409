package scaling

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Defaults of [Options].
const (
	DefaultHuber = 1e-3
	DefaultPrior = 1e-6
)

const (
	priorCenter = 0.3  // of α and β
	level       = 0.95 // confidence level of the intervals
)

// Options says how to fit. The zero value fits by plain least squares without priors and
// computes no bootstrap; [Defaults] returns the defaults of `cage fit`.
type Options struct {
	// Reference names the group with eff = 1, by its method or in the form of
	// Group.String(); "": the only one of 16 bits or more.
	Reference string
	// Baseline is a method with which the efficiencies of the others are compared at
	// equal bits; "": none.
	Baseline string
	// Fixed holds shared parameters at given values: "A", "alpha", "B", "beta", "E".
	Fixed map[string]float64
	// Huber is the threshold in log-loss beyond which a residual counts linearly; 0: never.
	Huber float64
	// Prior is the weight w of the priors w·(log α − log α₀)² + w·(log β − log β₀)²,
	// added to the squared residuals, with α₀ = β₀ = 0.3; 0: none. With residuals of size
	// σ, the priors mean that log α has the standard deviation σ/√w.
	Prior float64
	// Bootstrap is the number of replicates for the intervals; 0: intervals come from the
	// linearized law.
	Bootstrap int
	Seed      uint64 // of the bootstrap
}

// Defaults returns the default options of `cage fit`.
func Defaults() Options {
	return Options{Huber: DefaultHuber, Prior: DefaultPrior, Bootstrap: 1000}
}

// Check returns an error that says what is wrong with the options, or nil.
func (o Options) Check() error {
	_, err := o.resolve()
	return err
}

// resolve fills in defaults and refuses values that make no sense.
func (o Options) resolve() (Options, error) {
	switch {
	case !(o.Huber >= 0):
		return o, fmt.Errorf("huber threshold %v; want 0 or more", o.Huber)
	case !(o.Prior >= 0) || math.IsInf(o.Prior, 1):
		return o, fmt.Errorf("weight of the priors %v; want 0 or more", o.Prior)
	case o.Bootstrap < 0:
		return o, fmt.Errorf("%d bootstrap replicates; want 0 or more", o.Bootstrap)
	}
	for name, v := range o.Fixed {
		if !slices.Contains(names[:], name) {
			return o, fmt.Errorf("no parameter %q to fix; want one of %s", name, strings.Join(names[:], ", "))
		}
		zero := name == "B" || name == "E" // without that term
		if !(v > 0 || zero && v == 0) || math.IsInf(v, 1) {
			return o, fmt.Errorf("%s fixed at %v; want a number above 0 (B and E may be 0)", name, v)
		}
	}
	o.Huber = cmp.Or(o.Huber, math.Inf(1))
	return o, nil
}

// reference chooses the group with eff = 1; the second result is false when there is none
// and none is needed, because A is given.
func (o Options) reference(all []Group) (Group, bool, error) {
	var found []Group
	for _, g := range all {
		if o.Reference == "" && g.Bits >= fullPrecision || o.Reference != "" && (g.Method == o.Reference || g.String() == o.Reference) {
			found = append(found, g)
		}
	}
	_, given := o.Fixed["A"]
	switch {
	case len(found) == 1:
		return found[0], true, nil
	case len(found) > 1:
		return Group{}, false, fmt.Errorf("several groups could be the reference with eff = 1: %s; name one of them", quotedGroups(found))
	case o.Reference != "":
		return Group{}, false, fmt.Errorf("no reference %q; there are %s", o.Reference, quotedGroups(all))
	case given:
		return Group{}, false, nil
	}
	return Group{}, false, fmt.Errorf("no reference: no points of 16 bits or more, and without a method whose eff is 1 no eff can be told from A; there are %s: name one of them, or fix A", quotedGroups(all))
}

func quotedGroups(all []Group) string {
	var out []string
	for _, g := range all {
		out = append(out, fmt.Sprintf("%q", g.String()))
	}
	return strings.Join(out, ", ")
}
