package sdktest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/sdktest"
)

// caseFile returns a golden file with one case.
func caseFile(kind, of string) []byte {
	return fmt.Appendf(nil,
		`{"format": 1, "kind": %q, "name": "mine", "description": "by hand", "tolerance": {"abs": 1e-12, "rel": 0}, "cases": [{"id": "one", %s}]}`, kind, of)
}

// learnedCase is a case of [learned] with the step 0.5: its codes have 4 bits, and the last entry
// is clipped.
const learnedCase = `"role": "activation", "inputs": {"x": [[1.6, -0.2, 9]], "trained.step": 0.5, "d.value": [[1, 1, 1]]},
	"expected": {"value": [[1.5, 0, 3.5]], "codes": [[3, 0, 7]], "mask": [[true, true, false]], "d.x": [[1, 1, 0]], "d.trained.step": 7.2}`

// TestGoldenFileQuantizer checks golden files with trained parameters and gradients. The gradient
// with respect to the step is Σ round(r) − r = 3 − 3.2 + 0 + 0.4 inside the grid, and 7 outside.
func TestGoldenFileQuantizer(t *testing.T) {
	for _, c := range []struct {
		name, of string
		says     string
	}{
		{"right", learnedCase, ""},
		{"another gradient", strings.Replace(learnedCase, "7.2", "7.3", 1),
			"case one: d.trained.step: got 7.1"},
		{"another mask", strings.Replace(learnedCase, "true, false", "false, false", 1),
			"case one: mask at [0 1]: got 1, want 0"},
		{"a step for each row", strings.Replace(learnedCase, "0.5", "[0.5, 0.5]", 1),
			"trained.step has shape [2], want [] or a scalar"},
		{"a scale that is not given", strings.Replace(learnedCase, `"codes": [[3, 0, 7]]`, `"scale": 0.5`,
			1), "expected: the plugin does not return scale"},
		{"no step", `"inputs": {"x": [[1]]}, "expected": {"value": [[1]]}`,
			"inputs: the plugin's program needs trained.step"},
		{"an unknown input",
			strings.Replace(learnedCase, `"trained.step"`, `"trained.step": 1, "trained.zero"`, 1),
			"the plugin's program has no input trained.zero"},
		{"no x", `"inputs": {}, "expected": {"value": [[1]]}`, `inputs: "x" is missing`},
		{"a gradient of nothing", `"inputs": {"x": [[1]], "trained.step": 1}, "expected": {"d.x": [[1]]}`,
			`"d.x" needs the input "d.value"`},
		{"an unknown setting", `"settings": {"bit": 3}, ` + learnedCase, "bit"},
		{"another code", strings.Replace(learnedCase, `[[3, 0, 7]]`, `[[3, 0, 6]]`, 1),
			"case one: codes at [0 2]: got 7, want 6"},
		{"NaN instead of a number", strings.Replace(learnedCase, "3.5", `"NaN"`, 1),
			"case one: value at [0 2]: got 3.5, want NaN"},
		{"an infinity instead of a number", strings.Replace(learnedCase, "3.5", `"-Inf"`, 1),
			"case one: value at [0 2]: got 3.5, want -Inf"},
		{"an initial value without statistics",
			strings.Replace(learnedCase, `"d.x"`, `"trained.step": 99, "d.x"`, 1),
			"expected: the case computes no trained.step: initial values need column statistics"},
		{"state that is not kept", strings.Replace(learnedCase, `"d.x"`, `"kept.step": 99, "d.x"`, 1),
			"expected: the case computes no kept.step"},
		{"another shape", strings.Replace(learnedCase, `[[3, 0, 7]]`, `[3, 0]`, 1),
			"codes has 3 elements, want 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, err := sdktest.ParseGolden(caseFile("quantizer", c.of))
			if err != nil {
				t.Fatal(err)
			}
			says(t, sdktest.CheckGoldenQuantizer(learned{}, v), c.says, 5)
		})
	}
}

// says checks that a check failed with a message or, without one, passed after so many comparisons.
func says(t *testing.T, check sdktest.Check, says string, tried int) {
	t.Helper()
	if says == "" {
		if check.Status != sdktest.Pass || check.Tried != tried {
			t.Errorf("got %+v, want a pass of %d", check, tried)
		}
		return
	}
	if check.Status != sdktest.Fail || !strings.Contains(check.Failures[0].String(), says) {
		t.Errorf("got %s: %v, want %q", check.Status, check.Failures, says)
	}
}

// TestGoldenFileOptimizer checks directions and states, or x, after each step. In the first case x
// is constant: u = m = 1, then 0.9 + 1. In the second, with the rate 0.1 and decay 1: 2 → 1.8 →
// 1.7, then 1.53 → 1.34. With the decay last, and none in the first step: 1.9, then 0.9·1.71.
func TestGoldenFileOptimizer(t *testing.T) {
	const directions = `"inputs": {"x": [[2]], "gradient": [[[1]], [[1]]]}, "expected": {"direction": [[[1]], [[1.9]]], "state.m": [[[1]], [[1.9]]]}`
	const path = `"role": "vector", "inputs": {"x": [2], "gradient": [[1], [1]], "rate": 0.1, "weight_decay": 1}, "expected": {"x": [[1.7], [1.34]]}`
	for _, c := range []struct {
		name, of string
		tried    int
		says     string
	}{
		{"directions", directions, 2, ""},
		{"a path", path, 1, ""},
		{"the decay last", strings.NewReplacer(`"weight_decay": 1`,
			`"weight_decay": 1, "decay_last": true`,
			"1.7", "1.9", "1.34", "1.539").Replace(path), 1, ""},
		{"the decay not last", strings.Replace(path, `"weight_decay": 1`,
			`"weight_decay": 1, "decay_last": false`, 1), 1, ""},
		{"the decay in between", strings.Replace(path, `"weight_decay": 1`,
			`"weight_decay": 1, "decay_last": 0.5`, 1), 0, "decay_last is [0.5], want true or false"},
		{"a decay for each step", strings.Replace(path, `"weight_decay": 1`,
			`"weight_decay": 1, "decay_last": [1, 1]`, 1), 0, "decay_last is [1 1], want true or false"},
		{"state of a quantizer", strings.Replace(path, `{"x": [[1.7]`, `{"kept.m": 1, "x": [[1.7]`, 1),
			0, "expected: the case computes no kept.m"},
		{"rates", strings.Replace(path, "0.1", "[0.1, 0.1]", 1), 1, ""},
		{"another direction", strings.Replace(directions, "1.9", "1.8", 1), 0,
			"case one: direction at [1 0 0]: got 1.9"},
		{"an unknown state", strings.Replace(directions, "state.m", "state.v", 1), 0,
			"expected: the plugin does not return state.v"},
		{"an unknown input", strings.Replace(path, "rate", "rates", 1), 0, `unknown "rates"`},
		{"no gradients", `"inputs": {"x": [[2]]}, "expected": {"x": [[2]]}`, 0, "want x, and gradient"},
		{"three rates", strings.Replace(path, "0.1", "[0.1, 0.1, 0.1]", 1), 0,
			"got 3 rates, gradients of shape [2 1]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, err := sdktest.ParseGolden(caseFile("optimizer", c.of))
			if err != nil {
				t.Fatal(err)
			}
			says(t, sdktest.CheckGoldenOptimizer(momentum{}, v), c.says, c.tried)
		})
	}
}

// TestGoldenLoss checks that a case must give the losses that the optimizer reads.
func TestGoldenLoss(t *testing.T) {
	reads := momentum{
		u: func(in sdk.UpdateInput, m program.Value) program.Value { return m.Mul(in.Loss) }}
	const without = `"inputs": {"x": [[2]], "gradient": [[[1]], [[1]]]}, "expected": {"direction": [[[3]], [[5.7]]]}`
	for of, want := range map[string]string{
		without: "inputs: the plugin reads loss: want one for each of 2 updates",
		strings.Replace(without, `"x"`, `"loss": [3, 3], "x"`, 1): "",
	} {
		v, err := sdktest.ParseGolden(caseFile("optimizer", of))
		if err != nil {
			t.Fatal(err)
		}
		says(t, sdktest.CheckGoldenOptimizer(reads, v), want, 1)
	}
}

// TestGoldenFileMistakes checks that an error in a file is reported with its key.
func TestGoldenFileMistakes(t *testing.T) {
	for text, says := range map[string]string{
		"":                          "not a golden file",
		`{"format": 1, "nam": "x"}`: `unknown field "nam"`,
		`{"format": 2, "kind": "quantizer", "name": "x"}`:                                                                        "format: is 2, want 1",
		`{"format": 1, "kind": "quantizer"}`:                                                                                     "name: is missing",
		`{"format": 1, "name": "x", "kind": "quant"}`:                                                                            `kind: got "quant", want quantizer or optimizer`,
		`{"format": 1, "name": "x", "kind": "quantizer"}`:                                                                        "cases: want at least one",
		`{"format": 1, "name": "x", "kind": "quantizer", "tolerance": {"abs": -1}}`:                                              "tolerance: got -1",
		`{"format": 1, "name": "x", "kind": "quantizer", "cases": [{"inputs": {"x": [1]}}]}`:                                     `cases[0].id: got ""`,
		`{"format": 1, "name": "x", "kind": "quantizer", "cases": [{"id": "a", "inputs": {"x": [1]}}]}`:                          "cases[0] (a): expected is empty",
		`{"format": 1, "name": "x", "kind": "quantizer", "cases": [{"id": "a", "inputs": {"x": [[1, 2], [3]]}}]}`:                "lists of different lengths: element 1 has the shape [1], the first [2]",
		`{"format": 1, "name": "x", "kind": "quantizer", "cases": [{"id": "a", "inputs": {"x": ["one"]}}]}`:                      `"one" is not a number`,
		`{"format": 1, "name": "x", "kind": "quantizer", "cases": [{"id": "a", "inputs": {"x": [null]}}]}`:                       "null is not a number",
		`{"format": 1, "name": "x", "kind": "optimizer", "cases": [{"id": "a", "inputs": {"x": 1}, "expected": {"x": 1}}]} true`: "unexpected data after the JSON object",
	} {
		if _, err := sdktest.ParseGolden([]byte(text)); err == nil ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want %q", text, err, says)
		}
	}
}

// TestGoldenFile checks the call that an author writes.
func TestGoldenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "learned.json")
	if err := os.WriteFile(path, caseFile("quantizer", learnedCase), 0o644); err != nil {
		t.Fatal(err)
	}
	r := sdktest.CheckQuantizer(sdktest.NewQuantizer(learned{}), sdktest.GoldenFile(t, path))
	if last := r.Checks[len(r.Checks)-1]; last.Name != "golden mine" || last.Status != sdktest.Pass {
		t.Errorf("got %+v", last)
	}
}

// TestGoldenKind checks that values for the other kind of plugin are not compared.
func TestGoldenKind(t *testing.T) {
	v, err := sdktest.ParseGolden(caseFile("quantizer", learnedCase))
	if err != nil {
		t.Fatal(err)
	}
	says(t, sdktest.CheckGoldenOptimizer(momentum{}, v), "for plugins of the kind quantizer", 0)
}

// FuzzGoldenFile checks that a file is refused, or compared without a panic.
func FuzzGoldenFile(f *testing.F) {
	f.Add(caseFile("quantizer", learnedCase))
	f.Add(caseFile("optimizer",
		`"inputs": {"x": [[2]], "gradient": [[[1]], [[1]]]}, "expected": {"direction": [[[1]], [[1.9]]]}`))
	f.Add(caseFile("quantizer", `"inputs": {"x": [], "d.value": []}, "expected": {"value": []}`))
	f.Add(caseFile("optimizer", `"inputs": {"x": 1, "gradient": []}, "expected": {"x": "NaN"}`))
	f.Fuzz(func(t *testing.T, file []byte) {
		v, err := sdktest.ParseGolden(file)
		if err != nil {
			return
		}
		var check sdktest.Check
		if v.Kind == sdk.KindOptimizer {
			check = sdktest.CheckGoldenOptimizer(momentum{}, v)
		} else {
			check = sdktest.CheckGoldenQuantizer(learned{}, v)
		}
		for _, failure := range check.Failures {
			if strings.HasPrefix(failure.Message, "panic") {
				t.Error(failure)
			}
		}
	})
}
