package values

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/spec"
)

// file is a golden file of one case.
func file(name, params, inputs, expected string) []byte {
	return fmt.Appendf(nil, `{"format": 1, "name": %q, "description": "one case", "tolerance": {"abs": 1e-12, "rel": 1e-12},
		"cases": [{"id": "lsq one", "params": {%s}, "inputs": {%s}, "expected": {%s}}]}`, name, params, inputs, expected)
}

// absmax has the parameters that a file of absmax is about.
var absmax = sdk.Description{Name: "absmax", Parameters: []sdk.Parameter{
	sdk.Int("bits", 4, 2, 8, "size"), sdk.Choice("grid", "symmetric", []string{"symmetric", "centred"}, "levels"), sdk.Choice("granularity", "row", []string{"row"}, "what shares a scale"),
}}

// TestQuantizer: parameters become settings, and each output is compared with what the file has of it.
func TestQuantizer(t *testing.T) {
	v, err := Parse(file("absmax", `"grid": "centred", "bits": 4, "granularity": "row"`, `"x": [[7, 1]]`, `"codes": [[7, 1]], "dequant": [[7, 1]]`))
	if err != nil || v.Kind != sdk.KindQuantizer || v.Abs != 1e-12 || len(v.Cases) != 1 || len(v.Cases[0].Quantizer) != 1 {
		t.Fatalf("%+v, %v", v, err)
	}
	q, err := v.Cases[0].Quantizer[0](absmax)
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]any{"grid": "centred", "bits": 4, "granularity": "row"}; !reflect.DeepEqual(q.Settings, want) {
		t.Errorf("settings are %v, want %v", q.Settings, want)
	}
	for i, want := range []struct {
		output string
		factor float64
		there  bool
	}{{spec.OutputValue, 1, true}, {spec.OutputCodes, 1, true}, {spec.OutputScale, 2, false}} {
		if c := q.Compare[i]; c.Output != want.output || c.Factor != want.factor || (c.Want != nil) != want.there {
			t.Errorf("compared is %+v, want %+v", c, want)
		}
	}
}

// TestOptimizer: decay of the file is the host's, unless it is a penalty.
func TestOptimizer(t *testing.T) {
	sgd := sdk.Description{Name: "sgd", Parameters: []sdk.Parameter{sdk.Float("momentum", 0.9, 0, 1, "m"), sdk.Float("l2", 0, 0, 1, "penalty")}}
	for mode, decay := range map[string]float64{"decoupled": 0.5, "l2": 0} {
		v, err := Parse(file("sgd", `"momentum": 0.9, "weight_decay": 0.5, "wd_mode": "`+mode+`"`, `"x0": [[2]], "grads": [[[1]]], "lrs": [0.1]`, `"x": [[[1.7]]]`))
		if err != nil || v.Kind != sdk.KindOptimizer {
			t.Fatalf("%+v, %v", v, err)
		}
		o, err := v.Cases[0].Optimizer(sgd)
		if err != nil || o.Decay != decay || o.DecayLast || (o.Settings["l2"] == 0.5) != (mode == "l2") || o.Rates.Data[0] != 0.1 || o.Want.Data[0] != 1.7 {
			t.Errorf("%s: %+v, %v", mode, o, err)
		}
	}
}

// TestMistakes: a file or a case that cannot be compared is refused with the key that is wrong.
func TestMistakes(t *testing.T) {
	const params = `"grid": "symmetric", "bits": 4, "granularity": "row"`
	for _, c := range []struct {
		name string
		file []byte
		says string
	}{
		{"no input", file("absmax", params, "", ""), `it has no "x"`},
		{"a ragged input", file("absmax", params, `"x": [[1], [1, 2]]`, ""), "x: [1]: has shape [2]"},
		{"a parameter that is not declared", file("absmax", params+`, "group": 0`, `"x": [[7]]`, ""), "it needs the parameter group, which the plugin does not declare"},
		{"an unknown parameter", file("absmax", `"grad": 1`, `"x": [[7]]`, ""), `it has an unknown parameter "grad"`},
		{"a setting of another type", file("absmax", `"bits": "four"`, `"x": [[7]]`, ""), "its bits: is the string"},
		{"of the host", file("gptq", "", "", ""), `the file states no kind (quantizer or optimizer), and holds values of "gptq"; without a kind, plugins can be compared with absmax, adamw,`},
		{"of any plugin", []byte(`{"format": 1, "kind": "opitmizer", "name": "mine"}`), `kind: is "opitmizer", want quantizer or optimizer`},
		{"no JSON", []byte("{"), "not a JSON object"},
	} {
		v, err := Parse(c.file)
		if err == nil {
			_, err = v.Cases[0].Quantizer[0](absmax)
		}
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}
}

// FuzzParse: a file is refused, or each of its cases is, or can be asked.
func FuzzParse(f *testing.F) {
	f.Add(file("quest", `"bits": 4`, `"x": []`, `"xhat": [NaN]`))
	f.Add(file("absmax", `"bits": 4`, `"x": [[]]`, `"dequant": [[]], "codes": [], "scales": []`))
	f.Add(file("baselines", `"qn": 0, "qp": 15`, `"x": 1`, ""))
	f.Add(file("sgd", "", `"x0": 1, "grads": [], "lrs": []`, `"x": []`))
	f.Add([]byte(`{"format": 1, "name": "sgd", "description": "", "tolerance": {"abs": 0, "rel": 0}, "cases": [{"id": 1}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := Parse(text)
		if err != nil {
			return
		}
		for _, c := range v.Cases {
			for _, ask := range c.Quantizer {
				if q, err := ask(absmax); err == nil && len(q.Compare) == 0 {
					t.Error("nothing is compared")
				}
			}
			if c.Optimizer != nil {
				_, _ = c.Optimizer(absmax)
			}
		}
	})
}
