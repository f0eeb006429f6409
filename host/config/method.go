package config

import (
	"fmt"
	"slices"
	"strings"
)

// Names of methods.
const (
	MethodCAGE   = "cage"
	MethodLOTION = "lotion"
	MethodOff    = "off"
)

// Method is how the training takes the quantization of weights into account beyond
// the straight-through estimator. The keys of the methods that are not named have
// their defaults, but for Form, which is "off" then.
type Method struct {
	Name string // MethodCAGE, MethodLOTION or MethodOff

	// CAGE. ParetoEvery, with Lambda, is also of use when the method is off.
	Form        string  // "decoupled", "coupled" or "off"
	Gradient    string  // "quantized" or "full": where the gradient is taken
	Variant     string  // "paper" or "official": where the residual is taken (decoupled form)
	Lambda      float64 // λ at the end of the ramp
	Silence     float64 // s: fraction of the run before the correction starts
	Ramp        string  // "linear" or "constant"
	ParetoEvery int     // steps between measurements of ‖P_λ‖; 0: never

	// LOTION.
	Coeff       float64 // strength of the regularizer
	FisherDecay float64 // of the moving average of squared gradients, which is not bias-corrected
	Bits        int     // of the grid that the regularizer assumes
	Denom       string  // "power" or "symmetric": see Denominator
}

// Denominator is what LOTION divides the largest magnitude of a tensor by to get
// the step of its grid: 2^(bits−1), or one less for the symmetric grid.
func (m Method) Denominator() float64 {
	d := float64(int64(1) << (m.Bits - 1))
	if m.Denom == "symmetric" {
		d--
	}
	return d
}

// method checks that the keys of [method] are those of the named one.
func (d *decoder) method() {
	name := d.cfg.Method.Name
	if !d.good("method", "method.name") {
		return
	}
	for _, f := range methodTable.fields {
		key := joinKey(methodTable.name, f.key)
		if !f.belongs(name) && d.given[key] {
			d.drop(key) // that its value is wrong, too, does not matter
			owners := strings.ReplaceAll(QuotedList(f.of), ", ", " or ")
			d.report(key, fmt.Sprintf("a key of method.name = %s, found with method.name = %q", owners, name),
				"leave the key out, or set method.name = "+owners)
		}
	}
	if name == MethodLOTION && !d.cfg.Quantizer.quantizesWeights() && !d.badIn(quantizerTable) {
		d.report("method.name", `found the string "lotion", but no weight is quantized`,
			"want a [quantizer.weights], with which the run is evaluated")
	}
}

// belongs reports whether the key is one of the method of that name.
func (f field) belongs(method string) bool {
	return len(f.of) == 0 || slices.Contains(f.of, method)
}

// badIn reports whether a key of the table, or of one in it, has a problem.
func (d *decoder) badIn(t table) bool {
	for key := range d.bad {
		if key == t.name || strings.HasPrefix(key, t.name+".") {
			return true
		}
	}
	return false
}
