package sdktest

import "maps"

// Traits say what an algorithm promises beyond the interface, and what the checks must
// allow it. The zero Traits is right for most plugins.
type Traits struct {
	// Idempotent promises Q(Q(x)) = Q(x): what is on the grid stays where it is.
	Idempotent bool
	// AnyRounding lets values go to other levels than the nearest, as stochastic
	// rounding does. The noise may depend on the place of an element in its tensor.
	AnyRounding bool
	// AnyGradient lets the surrogate be something other than the identity on the entries
	// that the mask passes.
	AnyGradient bool
	// Ties is for grids that put some entries of any tensor, such as the largest, exactly
	// half way between two levels. Homogeneity is then tried with powers of two only.
	Ties bool
	// NoDescent is for optimizers that do not minimise on their own.
	NoDescent bool
	// Still promises that nothing moves as long as all gradients have been zero.
	Still bool
	// Descent promises that, with some rate, the parabola and Rosenbrock's function
	// come down to this fraction of their first value. 0 means the fraction that is asked
	// of all plugins.
	Descent float64
}

// Option is a choice of the caller.
type Option func(*options)

type options struct {
	settings map[string]any
	traits   Traits
	machines []Machine
	golden   []Values
	// defaultsOnly leaves the parameters that the caller has not fixed at their defaults.
	defaultsOnly bool
}

// With fixes parameters of the plugin, in all checks.
func With(settings map[string]any) Option {
	return func(o *options) { maps.Copy(o.settings, settings) }
}

// Claim states what the algorithm promises and needs.
func Claim(t Traits) Option { return func(o *options) { o.traits = t } }

// On adds machines on which programs run, besides the oracle.
func On(machines ...Machine) Option {
	return func(o *options) { o.machines = append(o.machines, machines...) }
}

// Golden adds the values of an independent implementation. On a machine in binary32, an element may go either way if noise of
// a few units in the last place moves it.
func Golden(v Values) Option { return func(o *options) { o.golden = append(o.golden, v) } }

func newOptions(list []Option) options {
	o := options{settings: map[string]any{}, machines: []Machine{Oracle{}}}
	for _, apply := range list {
		apply(&o)
	}
	return o
}
