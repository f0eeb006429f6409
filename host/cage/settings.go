package cage

import (
	"fmt"
	"slices"

	"github.com/cage-qat/cage/internal/schema"
)

// Names of methods, as used in configurations.
const (
	NameCAGE      = "cage"
	NameLOTION    = "lotion"
	NameOsciReset = "oscireset"
	NamePARQ      = "parq"
	NameWinQ      = "winq"
	NameOff       = "off"
)

// FullGradient is the value of method.gradient with which gradients are in full precision.
const FullGradient = "full"

// measured lists the names of the methods with which ‖P_λ‖ can be measured.
var measured = []string{NameCAGE, NameOff}

// Settings is the [method] table of a configuration, which selects and configures the training
// method. The settings of methods that are not selected have their default values, except that the
// form of CAGE is then Off.
type Settings struct {
	Name      string // NameCAGE, NameLOTION … or NameOff
	CAGE      CAGE
	LOTION    LOTION
	OsciReset OsciReset
	PARQ      PARQ
	WinQ      WinQ

	Gradient    string // point at which the gradient is computed: "quantized" or FullGradient
	ParetoEvery int    // steps between measurements of ‖P_λ‖; 0: never
}

// Method returns the selected method.
func (s Settings) Method() Method {
	switch s.Name {
	case NameCAGE:
		return s.CAGE
	case NameLOTION:
		return s.LOTION
	case NameOsciReset:
		return s.OsciReset
	case NamePARQ:
		return s.PARQ
	case NameWinQ:
		return s.WinQ
	default:
		return None{}
	}
}

// Title returns the name of the method as its authors spell it.
func (s Settings) Title() string {
	return map[string]string{NameCAGE: "CAGE", NameLOTION: "LOTION", NameOsciReset: "OsciReset",
		NamePARQ: "PARQ", NameWinQ: "WinQ", NameOff: "no method"}[s.Name]
}

// Own returns the settings of the selected method, by key; nil if no method is selected.
func (s Settings) Own() map[string]any {
	if s.Name == NameOff {
		return nil
	}
	own := map[string]any{}
	for _, k := range s.Keys(func() bool { return true }) {
		unused := k.Name == "lambda" && s.CAGE.Strength != nil
		if v := k.Value(); v != nil && k.For != nil && k.Belongs(s.Name) && !unused {
			own[k.Name] = v
		}
	}
	return own
}

// Acts reports whether the method affects training with quantized weights.
func (s Settings) Acts() bool {
	m := s.CAGE
	weight := m.Lambda
	if m.Strength != nil {
		weight = *m.Strength
	}
	pulls := m.Form != Off && weight > 0
	return s.Name != NameOff && (s.Name != NameCAGE || pulls)
}

// Keys returns the keys of the table. quantized reports whether any weight is quantized.
func (s *Settings) Keys(quantized func() bool) []schema.Key {
	form := func() any {
		if s.Name != NameCAGE || !quantized() {
			return Off
		}
		return Default.Form
	}
	name := schema.Key{Name: "name", To: &s.Name, Default: NameCAGE,
		Is:  schema.OneOf(NameCAGE, NameLOTION, NameOsciReset, NamePARQ, NameWinQ, NameOff),
		Doc: `method; off: none, as with form = "off"`}
	gradient := schema.Key{Name: "gradient", To: &s.Gradient, For: measured, Default: "quantized",
		Is: schema.OneOf("quantized", FullGradient),
		Doc: "where the gradient is taken: at the quantized model, passed straight through " +
			"(quantized); or at x, weights and activations in full precision (full), " +
			"as in the analysis of the correction"}
	pareto := schema.Key{Name: "pareto_every", To: &s.ParetoEvery, For: measured, Default: 0,
		Is: schema.From(0, schema.Most),
		Doc: "steps between measurements of ‖P_λ‖, the norm of ∇f(x) + λ·(x − Q(x)) and the paper's " +
			"measure of stationarity, each of which costs a full-precision forward and backward " +
			"pass; 0: never. λ is lambda, or follows from strength: give lambda to compare with runs " +
			"without a correction"}
	strength := schema.Key{Name: "strength", To: &s.CAGE.Strength, Is: schema.Between(0, 1e3),
		For: []string{NameCAGE},
		Optional: fmt.Sprintf("`%v` in the decoupled form, below %d steps proportionally less; "+
			"none with lambda", defaultStrength, fullStrengthSteps),
		Doc: "strength S of the correction: λ is chosen so that Σ α·λ over the run is S, whatever " +
			"the rates and the number of steps; a weight that nothing else moves keeps the share " +
			"e^(−S) of its quantization error (not with adapters). Tensors with a rate of their own " +
			"([[optimizer.groups]]) have the same S"}
	// A configuration's fingerprint depends on the order of the keys: append new ones.
	return slices.Concat([]schema.Key{name}, slices.Insert(s.CAGE.keys(form), 1, gradient),
		[]schema.Key{pareto}, s.LOTION.keys(), s.OsciReset.keys(), s.PARQ.keys(),
		[]schema.Key{strength}, s.WinQ.keys())
}

// Check returns the problems that involve several keys.
func (s Settings) Check() (out schema.Problems) {
	m := s.OsciReset
	out.Unless(m.Window <= m.Every-2, schema.Problem{
		Key:   "method.reset_window",
		Found: fmt.Sprintf("%d steps of every %d", m.Window, m.Every),
		Hint: fmt.Sprintf("want at most %d: a period has its first step before the window, "+
			"and the reset after it", m.Every-2)})
	p := s.PARQ
	out.Unless(p.AnnealStart < p.AnnealEnd, schema.Problem{
		Key:   "method.anneal_end",
		Found: fmt.Sprintf("%g, and the annealing begins at %g", p.AnnealEnd, p.AnnealStart),
		Hint:  "want a larger value"})
	return out
}
