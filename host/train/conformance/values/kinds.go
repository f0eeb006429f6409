package values

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/cage-qat/cage/internal/golden"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/spec"
)

// kind says how the cases of one kind of golden file, which is known by its name,
// are tried on a plugin.
type kind struct {
	of sdk.Kind
	// settings maps parameters of a case to those of the plugin.
	settings map[string]string
	// others are parameters of a case that are not settings.
	others []string
	// optional settings are given to plugins that declare them.
	optional map[string]any
	// special changes the settings of a case where matching names is not enough.
	special func(c fileCase, settings map[string]any) error
	// applies reports whether a case is for plugins; nil means that all cases are.
	applies func(c fileCase) bool
	// questions are what a quantizer is asked in one case.
	questions func(c fileCase) []question
	// decayLast applies weight decay after each step except the first.
	decayLast bool
}

// question is one run of a quantizer and what it is compared with.
type question struct {
	settings map[string]any // besides those of the case
	role     sdk.Role
	trained  map[string]float64
	compare  []comparand
}

// comparand is an output of a program, or a gradient, that is compared. Multiplied by factor
// it must agree with what the case has under key, and be equal to it if exact is set.
type comparand struct {
	output, key string
	factor      float64
	exact       bool
}

const (
	gradientX   = "d." + spec.InputX
	trainedStep = "d." + spec.TrainedPrefix
)

// kinds are the files that can be run, by the name that the file states. A
// plugin can run a file if it declares the parameters on the right-hand side of settings.
var kinds = map[string]kind{
	"quest": {of: sdk.KindQuantizer,
		settings: map[string]string{"form": "form", "bits": "bits", "mode": "rotation", "k_table": "k_table", "mask": "mask", "trust": "trust"},
		others:   []string{"block", "k", "eps"}, optional: map[string]any{"zero_guard": false}, // the published code has none
		questions: askQuest},
	"mxfp4": {of: sdk.KindQuantizer,
		settings: map[string]string{"rule": "scale_rule", "ties": "ties", "hblock": "rotation"}, others: []string{"block"},
		special: noRotation, questions: askMXFP4},
	"nvfp4": {of: sdk.KindQuantizer,
		settings: map[string]string{"ties": "ties", "hblock": "rotation"}, others: []string{"block"},
		special: noRotation, questions: func(fileCase) []question {
			return ask(comparand{spec.OutputValue, "xhat", 1, false}, comparand{spec.OutputCodes, "codes", 1, true})
		}},
	"absmax": {of: sdk.KindQuantizer,
		settings: map[string]string{"grid": "grid", "bits": "bits", "granularity": "granularity", "group": "group"},
		special:  noGroup, questions: askAbsMax},
	"baselines": {of: sdk.KindQuantizer, others: []string{"step", "offset", "qn", "qp", "grad_scale"},
		applies: func(c fileCase) bool { return strings.HasPrefix(c.id, "lsq") }, special: lsqGrid, questions: askLSQ},
	"adamw": {of: sdk.KindOptimizer, settings: same("beta1", "beta2", "eps"), others: []string{decayKey}},
	"sgd": {of: sdk.KindOptimizer, settings: same("momentum", "dampening", "nesterov"), others: []string{decayKey, "wd_mode"},
		special: func(c fileCase, settings map[string]any) error {
			var err error
			if c.params["wd_mode"] == "l2" {
				settings["l2"], err = golden.Float(c.params[decayKey])
			}
			return err
		}},
	"muon":    {of: sdk.KindOptimizer, settings: same("variant", "momentum", "nesterov", "ns_steps", "rms"), others: []string{decayKey}},
	"shampoo": {of: sdk.KindOptimizer, settings: same("beta1", "beta2", "eps", "graft_beta2", "graft_eps", "freq", "start", "graft"), others: []string{decayKey}},
	"soap": {of: sdk.KindOptimizer, decayLast: true, others: []string{decayKey},
		settings: map[string]string{"beta1": "beta1", "beta2": "beta2", "shampoo_beta": "shampoo_beta", "eps": "eps", "freq": "freq", "max_dim": "max_precond_dim", "normalize": "normalize"}},
}

// decayKey names the coefficient of decoupled weight decay, which the host applies.
const decayKey = "weight_decay"

func same(names ...string) map[string]string {
	m := map[string]string{}
	for _, n := range names {
		m[n] = n
	}
	return m
}

func ask(compare ...comparand) []question {
	return []question{{role: sdk.RoleWeight, compare: compare}}
}

// askQuest: the scale that the file states for the official form is the largest level,
// 2^b − 1 half steps.
func askQuest(c fileCase) []question {
	factor := 1.0
	if bits, err := golden.Int(c.params["bits"]); err == nil && c.params["form"] == "official" {
		factor = math.Ldexp(1, bits) - 1
	}
	return ask(comparand{spec.OutputValue, "xhat", 1, false}, comparand{spec.OutputCodes, "codes", 1, true},
		comparand{spec.OutputMask, "mask", 1, true}, comparand{gradientX, "grad_in", 1, false},
		comparand{spec.OutputScale, "scale", factor, false})
}

// askMXFP4: the file states both kinds of masks for each case.
func askMXFP4(fileCase) []question {
	q := ask(comparand{spec.OutputValue, "xhat", 1, false}, comparand{spec.OutputCodes, "codes", 1, true}, comparand{spec.OutputScale, "scale", 1, false})
	for _, mask := range []string{"clip", "trust"} {
		q = append(q, question{role: sdk.RoleWeight, settings: map[string]any{"mask": mask},
			compare: []comparand{{spec.OutputMask, mask + "_mask", 1, true}}})
	}
	return q
}

// askAbsMax: codes of the centred grid are twice the level, and so its scale is half
// the step that the file states.
func askAbsMax(c fileCase) []question {
	factor := 1.0
	if c.params["grid"] == "centred" {
		factor = 2
	}
	return ask(comparand{spec.OutputValue, "dequant", 1, false}, comparand{spec.OutputCodes, "codes", 1, true},
		comparand{spec.OutputScale, "scales", factor, false})
}

// askLSQ: the file gives the trained parameters; a case with an offset is an
// activation.
func askLSQ(c fileCase) []question {
	q := question{role: sdk.RoleWeight, trained: map[string]float64{}, compare: []comparand{
		{spec.OutputValue, "dequant", 1, false}, {gradientX, "grad_input", 1, false}}}
	for _, name := range []string{"step", "offset"} {
		if v, ok := c.params[name]; ok {
			q.trained[name], _ = golden.Float(v)
			q.compare = append(q.compare, comparand{trainedStep + name, "grad_" + name, 1, false})
		}
	}
	if _, ok := c.params["offset"]; ok {
		q.role = sdk.RoleActivation
	}
	return []question{q}
}

// lsqGrid derives the settings of the grid from its ends, qn and qp.
func lsqGrid(c fileCase, settings map[string]any) error {
	qn, err := golden.Int(c.params["qn"])
	if err != nil {
		return fmt.Errorf("qn: %w", err)
	}
	qp, err := golden.Int(c.params["qp"])
	if err != nil {
		return fmt.Errorf("qp: %w", err)
	}
	settings["bits"] = int(math.Round(math.Log2(float64(qn + qp + 1))))
	settings["levels"] = "signed"
	if qn == 0 {
		settings["levels"] = "unsigned"
	}
	if _, ok := c.params["offset"]; ok {
		settings["variant"] = "lsq+"
	}
	return nil
}

func noRotation(_ fileCase, settings map[string]any) error {
	if settings["rotation"] == "0" {
		settings["rotation"] = "none"
	}
	return nil
}

func noGroup(_ fileCase, settings map[string]any) error {
	if settings["group"] == 0 {
		delete(settings, "group")
	}
	return nil
}

// resolve returns the settings of a case for a plugin. Settings of the question replace those of the case.
func (k kind) resolve(d sdk.Description, c fileCase, asked map[string]any) (map[string]any, error) {
	declared := map[string]sdk.Parameter{}
	for _, p := range d.Parameters {
		declared[p.Name] = p
	}
	settings, err := k.renamed(declared, c)
	if err != nil {
		return nil, err
	}
	if k.special != nil {
		if err := k.special(c, settings); err != nil {
			return nil, err
		}
	}
	maps.Copy(settings, asked)
	for name, v := range k.optional {
		if _, ok := declared[name]; ok {
			settings[name] = v
		}
	}
	return settings, nil
}

// renamed reads the parameters of a case as settings of the plugin.
func (k kind) renamed(declared map[string]sdk.Parameter, c fileCase) (map[string]any, error) {
	settings := map[string]any{}
	for name, v := range c.params {
		to, ok := k.settings[name]
		if !ok {
			if !slices.Contains(k.others, name) {
				return nil, fmt.Errorf("it has an unknown parameter %q", name)
			}
			continue
		}
		p, ok := declared[to]
		if !ok {
			return nil, fmt.Errorf("it needs the parameter %s, which the plugin does not declare", to)
		}
		var err error
		if settings[to], err = setting(p, v); err != nil {
			return nil, fmt.Errorf("its %s: %w", name, err)
		}
	}
	return settings, nil
}

// setting reads a value of a golden file as the type of a parameter.
func setting(p sdk.Parameter, v any) (any, error) {
	switch p.Type {
	case sdk.TypeInt:
		return golden.Int(v)
	case sdk.TypeFloat:
		return golden.Float(v)
	case sdk.TypeBool:
		return golden.Bool(v)
	default:
		return golden.Text(v)
	}
}
