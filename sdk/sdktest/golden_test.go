package sdktest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/sdktest"
)

// file is a golden file of one case.
func file(name, params, inputs, expected string) []byte {
	return fmt.Appendf(nil, `{"format": 1, "name": %q, "description": "one case", "tolerance": {"abs": 1e-12, "rel": 1e-12},
		"cases": [{"id": "one", "params": {%s}, "inputs": {%s}, "expected": {%s}}]}`, name, params, inputs, expected)
}

// gridded is rows under the parameters of absmax.
func gridded() sdk.Quantizer {
	return broken(func(q *rows) {
		q.parameters = append(q.parameters, sdk.Choice("grid", "symmetric", []string{"symmetric"}, "levels"),
			sdk.Choice("granularity", "row", []string{"row"}, "what shares a scale"))
	})
}

const absmaxParams = `"grid": "symmetric", "bits": 4, "granularity": "row", "group": 0`

func absmaxFile(codes string) []byte {
	return file("absmax", strings.Replace(absmaxParams, `, "group": 0`, "", 1), `"x": [[7, -3.5, 0.5, 1.5]]`,
		`"codes": `+codes+`, "dequant": [[7, -4, 0, 2]], "scales": [[1]]`)
}

// TestGoldenQuantizer: the case is compared on every machine, and only what the
// file's kind knows of.
func TestGoldenQuantizer(t *testing.T) {
	const right = "[[7, -4, 0, 2]]"
	for _, c := range []struct {
		name string
		file []byte
		says string
	}{
		{"right", absmaxFile(right), ""},
		{"another code", absmaxFile("[[7, -3, 0, 2]]"), "on oracle, weight [1 4]: case one: codes at [0 1]: got -4, want -3"},
		{"another shape", absmaxFile("[7, -4]"), "codes has 4 elements, want 2"},
		{"no codes", file("absmax", `"grid": "symmetric"`, `"x": [[7]]`, `"dequant": [[7]]`), `it has no "codes"`},
		{"no input", file("absmax", `"grid": "symmetric"`, "", ""), `it has no "x"`},
		{"a parameter that is not declared", file("absmax", absmaxParams, `"x": [[7]]`, ""), "it needs the parameter group, which the plugin does not declare"},
		{"an unknown parameter", file("absmax", `"grad": 1`, `"x": [[7]]`, ""), `it has an unknown parameter "grad"`},
		{"a setting of another type", file("absmax", `"bits": "four"`, `"x": [[7]]`, ""), "its bits: is the string"},
		{"a setting out of range", file("absmax", `"bits": 12`, `"x": [[7]]`, ""), "got 12, want an integer: 2 to 8"},
		{"of optimizers", file("adamw", "", "", ""), "for plugins of the kind optimizer"},
		{"of the host", file("gptq", "", "", ""), `the file holds values of "gptq"; those that plugins can be compared with are absmax, adamw,`},
		{"no JSON", []byte("{"), "not a JSON object"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := sdktest.CheckQuantizer(sdktest.NewQuantizer(gridded()), sdktest.Golden(c.file), sdktest.On(device{}))
			check := r.Checks[len(r.Checks)-1]
			if c.says == "" {
				if check.Status != sdktest.Pass || check.Tried != 6 {
					t.Errorf("got %+v, want three outputs on two machines", check)
				}
				return
			}
			if check.Status != sdktest.Fail || !strings.Contains(check.Failures[0].String(), c.says) {
				t.Errorf("got %s: %v, want %q", check.Status, check.Failures, c.says)
			}
		})
	}
}

// sgd is momentum under the parameters of sgd.
type sgd struct{ momentum }

func (sgd) Describe() sdk.Description {
	return sdk.Description{Name: "sgd", Doc: "Momentum of 0.9.", Parameters: []sdk.Parameter{
		sdk.Float("momentum", 0.9, 0, 1, "not read"), sdk.Bool("nesterov", false, "not read"), sdk.Float("dampening", 0, 0, 1, "not read"),
	}}
}

// TestGoldenOptimizer: decay comes first. 2 → 1.8, u = 1, x = 1.7; then 1.53, u =
// 0.9 + 1, x = 1.34.
func TestGoldenOptimizer(t *testing.T) {
	params := `"momentum": 0.9, "dampening": 0, "nesterov": false, "weight_decay": 1, "wd_mode": "decoupled"`
	inputs := `"x0": [[2]], "grads": [[[1]], [[1]]], "lrs": [0.1, 0.1]`
	for _, c := range []struct{ expected, says string }{
		{`"x": [[[1.7]], [[1.34]]]`, ""},
		{`"x": [[[1.7]], [[1.35]]]`, "case one: x at [1 0 0]: got 1.34"},
		{`"x": [[[1.7]]]`, "it has 2 rates, [2 1 1] gradients and expects [1 1 1]"},
	} {
		r := sdktest.CheckOptimizer(sdktest.NewOptimizer(sgd{}), sdktest.Golden(file("sgd", params, inputs, c.expected)), sdktest.On(device{}))
		check := r.Checks[len(r.Checks)-1]
		switch {
		case c.says == "" && check.Status != sdktest.Pass:
			t.Errorf("%+v", check)
		case c.says != "" && (check.Status != sdktest.Fail || !strings.Contains(check.Failures[0].String(), c.says)):
			t.Errorf("got %s: %v, want %q", check.Status, check.Failures, c.says)
		}
	}
}

// FuzzGolden: no file makes the kit panic.
func FuzzGolden(f *testing.F) {
	f.Add(absmaxFile("[[7, -4, 0, 2]]"))
	f.Add(file("quest", `"bits": 4`, `"x": []`, `"xhat": [NaN]`))
	f.Add(file("absmax", `"bits": 4`, `"x": [[]]`, `"dequant": [[]], "codes": [], "scales": []`))
	f.Add(file("baselines", `"qn": 0, "qp": 15`, `"x": 1`, ""))
	f.Add(file("sgd", "", `"x0": 1, "grads": [], "lrs": []`, `"x": []`))
	f.Add([]byte(`{"format": 1, "name": "sgd", "description": "", "tolerance": {"abs": 0, "rel": 0}, "cases": [{"id": 1}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, c := range []sdktest.Check{sdktest.CheckGoldenQuantizer(gridded(), text), sdktest.CheckGoldenOptimizer(sgd{}, text)} {
			for _, failure := range c.Failures {
				if strings.HasPrefix(failure.Message, "panic") {
					t.Error(failure)
				}
			}
		}
	})
}
