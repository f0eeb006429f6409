package sdktest_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/sdktest"
	"github.com/cage-qat/cage/sdk/spec"
)

// matrix is a matrix of one row.
func matrix(row ...float64) sdktest.Array {
	return sdktest.Array{Shape: []int{1, len(row)}, Data: row}
}

// rounded are values of [rows] in 4 bits, with these codes.
func rounded(codes *sdktest.Array) sdktest.QuantizerValues {
	value, scale := matrix(7, -4, 0, 2), matrix(1)
	return sdktest.QuantizerValues{Settings: map[string]any{"bits": 4}, Role: sdk.RoleWeight, X: matrix(7, -3.5, 0.5, 1.5), Compare: []sdktest.Comparand{
		{Output: spec.OutputValue, Name: "dequant", Want: &value, Factor: 1}, {Output: spec.OutputCodes, Name: "codes", Want: codes, Factor: 1, Exact: true},
		{Output: spec.OutputScale, Name: "scales", Want: &scale, Factor: 1}}}
}

// asked are values of one question.
func asked(v sdktest.QuantizerValues, err error) sdktest.Values {
	question := func(sdk.Description) (sdktest.QuantizerValues, error) { return v, err }
	return sdktest.Values{Name: "rows", Kind: sdk.KindQuantizer, Abs: 1e-12, Rel: 1e-12,
		Cases: []sdktest.Case{{ID: "one", Quantizer: []func(sdk.Description) (sdktest.QuantizerValues, error){question}}}}
}

// taken are values of one path.
func taken(v sdktest.OptimizerValues) sdktest.Values {
	return sdktest.Values{Name: "momentum", Kind: sdk.KindOptimizer, Abs: 1e-12, Rel: 1e-12,
		Cases: []sdktest.Case{{ID: "one", Optimizer: func(sdk.Description) (sdktest.OptimizerValues, error) { return v, nil }}}}
}

// TestGoldenQuantizer: the case is compared on every machine, and only what the plugin gives.
func TestGoldenQuantizer(t *testing.T) {
	right, other, short := matrix(7, -4, 0, 2), matrix(7, -3, 0, 2), sdktest.Array{Shape: []int{2}, Data: []float64{7, -4}}
	set := func(name string, value any) sdktest.QuantizerValues {
		v := rounded(&right)
		v.Settings = map[string]any{name: value}
		return v
	}
	misshapen := rounded(&right)
	misshapen.X.Shape = []int{2, 4}
	for _, c := range []struct {
		name   string
		values sdktest.Values
		says   string
	}{
		{"right", asked(rounded(&right), nil), ""},
		{"another code", asked(rounded(&other), nil), "on oracle, weight [1 4]: case one: codes at [0 1]: got -4, want -3"},
		{"another shape", asked(rounded(&short), nil), "codes has 4 elements, want 2"},
		{"no codes", asked(rounded(nil), nil), `it has no "codes"`},
		{"fewer numbers than the shape has", asked(misshapen, nil), "case one: 4 numbers cannot have the shape [2 4]"},
		{"a question that cannot be asked", asked(rounded(&right), errors.New("of another plugin")), "case one: of another plugin"},
		{"an unknown setting", asked(set("grad", 1), nil), "grad"},
		{"a setting out of range", asked(set("bits", 12), nil), "got 12, want an integer: 2 to 8"},
		{"of optimizers", taken(sdktest.OptimizerValues{}), "for plugins of the kind optimizer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			check := sdktest.CheckGoldenQuantizer(good(), c.values, sdktest.On(device{}))
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

// TestGoldenOptimizer: decay comes first, unless it is to come last. 2 → 1.8, u = 1, x = 1.7; then 1.53, u = 0.9 + 1,
// x = 1.34. With the decay last, and none in the first step: 1.9, then 1.71, and a tenth less.
func TestGoldenOptimizer(t *testing.T) {
	path := func(last bool, x ...float64) sdktest.Values {
		ones := sdktest.Array{Shape: []int{2, 1, 1}, Data: []float64{1, 1}}
		return taken(sdktest.OptimizerValues{X: matrix(2), Gradients: ones, Rates: sdktest.Array{Shape: []int{2}, Data: []float64{0.1, 0.1}},
			Want: sdktest.Array{Shape: []int{len(x), 1, 1}, Data: x}, Decay: 1, DecayLast: last})
	}
	for _, c := range []struct {
		values sdktest.Values
		says   string
	}{
		{path(false, 1.7, 1.34), ""},
		{path(true, 1.9, 1.539), ""},
		{path(false, 1.7, 1.35), "case one: x at [1 0 0]: got 1.34"},
		{path(false, 1.7), "case one: x has 2 elements, want 1"},
	} {
		check := sdktest.CheckGoldenOptimizer(momentum{}, c.values, sdktest.On(device{}))
		switch {
		case c.says == "" && check.Status != sdktest.Pass:
			t.Errorf("%+v", check)
		case c.says != "" && (check.Status != sdktest.Fail || !strings.Contains(check.Failures[0].String(), c.says)):
			t.Errorf("got %s: %v, want %q", check.Status, check.Failures, c.says)
		}
	}
}

// FuzzGolden: no values make the kit panic.
func FuzzGolden(f *testing.F) {
	for _, seed := range []string{
		`{"Role":"weight","X":{"Shape":[1,4],"Data":[7,-3.5,0.5,1.5]},"Compare":[{"Output":"codes","Want":{"Shape":[1],"Data":[7]},"Factor":1,"Exact":true}]}`,
		`{"Role":"weight","X":{"Shape":[0]}}`, `{"X":{"Shape":[-1,-1],"Data":[1]}}`, `{"Role":"activation","X":{"Data":[1]},"Trained":{"step":1}}`,
		`{"X":{"Shape":[1,1],"Data":[2]},"Gradients":{"Shape":[1],"Data":[1]},"Rates":{"Shape":[1],"Data":[0.1]},"Want":{"Shape":[1],"Data":[1]},"Decay":1}`,
		`{"X":{"Shape":[],"Data":[1]},"Rates":{"Shape":[0]}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var q sdktest.QuantizerValues
		var o sdktest.OptimizerValues
		_, _ = json.Unmarshal(text, &q), json.Unmarshal(text, &o)
		for _, c := range []sdktest.Check{sdktest.CheckGoldenQuantizer(good(), asked(q, nil)), sdktest.CheckGoldenOptimizer(momentum{}, taken(o))} {
			for _, failure := range c.Failures {
				if strings.HasPrefix(failure.Message, "panic") {
					t.Error(failure)
				}
			}
		}
	})
}
