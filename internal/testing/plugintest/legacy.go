package plugintest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/sdktest"
	"github.com/cage-qat/cage/sdk/spec"
)

// Golden returns the option that compares a plugin with the golden file at the path. A file that
// states a kind has the kit's format. Other files are shared with tests of other packages and have
// keys of their own, which depend on the name that the file states: see legacyFiles.
func Golden(t testing.TB, path string) sdktest.Option {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	values, err := parseGolden(text)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return sdktest.Golden(values)
}

type object = map[string]any

// legacyFile maps the keys of a file to those of the kit.
type legacyFile struct {
	kind     sdk.Kind
	settings map[string]string
	inputs   map[string]string // names of inputs and parameters
	expected map[string]string
	// adapt changes a converted case, given its parameters, and returns the cases to be compared;
	// nil keeps it unchanged.
	adapt func(params object, c legacyCase) []legacyCase
}

type legacyCase struct {
	ID       string `json:"id"`
	Role     string `json:"role,omitempty"`
	Settings object `json:"settings"`
	Inputs   object `json:"inputs"`
	Expected object `json:"expected"`
}

var (
	quantizerInputs = names("x", "grad_out d.value")
	optimizerInputs = names("x0 x", "grads gradient", "lrs rate", "weight_decay")
)

var legacyFiles = map[string]legacyFile{
	"quest": {sdk.KindQuantizer,
		names("form", "bits", "mode rotation", "mask", "trust"), quantizerInputs,
		names("xhat value", "codes", "mask", "grad_in d.x", "scale"), adaptQuest},
	"mxfp4": {sdk.KindQuantizer, names("rule scale_rule", "ties", "hblock rotation"), quantizerInputs,
		names("xhat value", "codes", "scale", "clip_mask", "trust_mask"), adaptMXFP4},
	"nvfp4": {sdk.KindQuantizer, names("ties", "hblock rotation"), quantizerInputs,
		names("xhat value", "codes"), noRotation},
	"absmax": {sdk.KindQuantizer, names("grid", "bits", "granularity", "group"), quantizerInputs,
		names("dequant value", "codes", "scales scale"), adaptAbsMax},
	"baselines": {sdk.KindQuantizer, nil,
		names("x", "grad_out d.value", "step trained.step", "offset trained.offset"),
		names("dequant value", "grad_input d.x", "grad_step d.trained.step",
			"grad_offset d.trained.offset"), adaptLSQ},
	"adamw": optimizerFile(nil, "beta1", "beta2", "eps"),
	"sgd":   optimizerFile(adaptSGD, "momentum", "dampening", "nesterov"),
	"muon":  optimizerFile(nil, "variant", "momentum", "nesterov", "ns_steps", "rms"),
	"shampoo": optimizerFile(nil, "beta1", "beta2", "eps", "graft_beta2", "graft_eps", "freq", "start",
		"graft"),
	"soap": optimizerFile(adaptSOAP, "beta1", "beta2", "shampoo_beta", "eps", "freq",
		"max_dim max_precond_dim"),
}

func optimizerFile(adapt func(object, legacyCase) []legacyCase, settings ...string) legacyFile {
	return legacyFile{sdk.KindOptimizer, names(settings...), optimizerInputs, names("x"), adapt}
}

// names returns a map of names: "from to", or one word for an unchanged name.
func names(list ...string) map[string]string {
	m := map[string]string{}
	for _, n := range list {
		from, to, ok := strings.Cut(n, " ")
		if m[from] = to; !ok {
			m[from] = from
		}
	}
	return m
}

func parseGolden(text []byte) (sdktest.Values, error) {
	var f struct {
		Name      string
		Kind      sdk.Kind
		Tolerance object
		Cases     []struct {
			ID                       string
			Params, Inputs, Expected object
		}
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&f); err != nil {
		return sdktest.Values{}, err
	}
	if f.Kind != "" {
		return sdktest.ParseGolden(text)
	}
	how, ok := legacyFiles[f.Name]
	if !ok {
		return sdktest.Values{}, fmt.Errorf("no plugin can be compared with values of %q", f.Name)
	}
	var cases []legacyCase
	for _, c := range f.Cases {
		one := legacyCase{ID: c.ID, Settings: renamed(c.Params, how.settings),
			Inputs: renamed(c.Params, how.inputs), Expected: renamed(c.Expected, how.expected)}
		for name, v := range renamed(c.Inputs, how.inputs) {
			one.Inputs[name] = v
		}
		if how.adapt == nil {
			cases = append(cases, one)
		} else {
			cases = append(cases, how.adapt(c.Params, one)...)
		}
	}
	file, err := json.Marshal(object{"format": 1, "kind": how.kind, "name": f.Name,
		"tolerance": f.Tolerance, "cases": cases})
	if err != nil {
		return sdktest.Values{}, err
	}
	return sdktest.ParseGolden(file)
}

func renamed(from object, names map[string]string) object {
	to := object{}
	for name, v := range from {
		if other, ok := names[name]; ok {
			to[other] = v
		}
	}
	return to
}

func number(v any) float64 {
	n, err := v.(json.Number).Float64()
	if err != nil {
		panic(err)
	}
	return n
}

// divided divides all numbers in nested lists.
func divided(v any, by float64) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = divided(e, by)
		}
		return out
	case json.Number:
		return number(v) / by
	}
	return v
}

// adaptQuest: the scale that the file states for the official form is the largest level, 2^b − 1
// half steps; and the published code has no guard for zeros.
func adaptQuest(params object, c legacyCase) []legacyCase {
	c.Settings["rotation"] = fmt.Sprint(c.Settings["rotation"])
	if params["form"] == "official" {
		levels := math.Exp2(number(params["bits"])) - 1
		c.Expected[spec.OutputScale] = divided(c.Expected[spec.OutputScale], levels)
	}
	return []legacyCase{c}
}

// adaptMXFP4: the file states both kinds of masks for each case.
func adaptMXFP4(params object, c legacyCase) (all []legacyCase) {
	noRotation(params, c)
	for _, mask := range []string{"clip", "trust"} {
		one := c
		one.ID += ", mask " + mask
		one.Settings = renamed(c.Settings, names("scale_rule", "ties", "rotation"))
		one.Settings["mask"] = mask
		one.Expected = object{spec.OutputMask: c.Expected[mask+"_mask"]}
		delete(c.Expected, mask+"_mask")
		all = append(all, one)
	}
	return append(all, c)
}

func noRotation(_ object, c legacyCase) []legacyCase {
	if c.Settings["rotation"] = fmt.Sprint(c.Settings["rotation"]); c.Settings["rotation"] == "0" {
		c.Settings["rotation"] = "none"
	}
	return []legacyCase{c}
}

// adaptAbsMax: codes of the centred grid are twice the level, so the scale is half the step in the
// file.
func adaptAbsMax(params object, c legacyCase) []legacyCase {
	if params["grid"] == "centred" {
		c.Expected[spec.OutputScale] = divided(c.Expected[spec.OutputScale], 2)
	}
	if c.Settings["group"] == json.Number("0") {
		delete(c.Settings, "group")
	}
	return []legacyCase{c}
}

// adaptLSQ derives the settings of the grid from its ends, qn and qp. A case with an offset is an
// activation. Other cases of the file are for the host.
func adaptLSQ(params object, c legacyCase) []legacyCase {
	if !strings.HasPrefix(c.ID, "lsq") {
		return nil
	}
	qn, qp := number(params["qn"]), number(params["qp"])
	c.Settings["bits"] = int(math.Round(math.Log2(qn + qp + 1)))
	c.Settings["levels"] = "signed"
	if qn == 0 {
		c.Settings["levels"] = "unsigned"
	}
	if _, ok := params["offset"]; ok {
		c.Settings["variant"], c.Role = "lsq+", "activation"
	}
	return []legacyCase{c}
}

func adaptSGD(params object, c legacyCase) []legacyCase {
	if params["wd_mode"] == "l2" {
		c.Settings["l2"], c.Inputs["weight_decay"] = c.Inputs["weight_decay"], 0
	}
	return []legacyCase{c}
}

// adaptSOAP: the published code returns from its first call before the decay.
func adaptSOAP(_ object, c legacyCase) []legacyCase {
	c.Inputs["decay_last"] = true
	return []legacyCase{c}
}
