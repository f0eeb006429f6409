// Package values reads golden files, values of independent implementations, for the conformance kit. A file that states a kind is
// of any plugin, in the format of package sdktest. Of the others, which are shared with tests of other rooms, the name decides
// which plugins can be compared with them, and how their parameters become settings: quest, mxfp4, nvfp4, absmax and
// baselines (LSQ) for quantizers; adamw, sgd, muon, shampoo and soap for optimizers. Weight decay is applied where the
// published code of the algorithm applies it.
package values

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cage-qat/cage/internal/golden"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/sdktest"
)

// Parse reads a golden file of either format. The error says what is wrong with it, or that no plugin computes its values. What is wrong with a
// case is told when it is tried.
func Parse(file []byte) (v sdktest.Values, err error) {
	var stated struct{ Kind any }
	if json.Unmarshal(file, &stated) == nil && stated.Kind != nil {
		return sdktest.ParseGolden(file)
	}
	f, err := golden.Parse(file)
	if err != nil {
		return v, err
	}
	k, ok := kinds[f.Name]
	if !ok {
		return v, fmt.Errorf(`the file states no kind (quantizer or optimizer), and holds values of %q; without a kind, plugins can be compared with %s`,
			f.Name, strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))
	}
	v = sdktest.Values{Name: f.Name, Kind: k.of, Abs: f.Tolerance.Abs, Rel: f.Tolerance.Rel}
	for _, m := range f.Cases {
		part := func(key string) map[string]any { object, _ := m[key].(map[string]any); return object }
		id, _ := m["id"].(string)
		c := fileCase{id, part("params"), part("inputs"), part("expected")}
		if k.applies != nil && !k.applies(c) {
			continue
		}
		one := sdktest.Case{ID: id}
		if k.of == sdk.KindOptimizer {
			one.Optimizer = func(d sdk.Description) (sdktest.OptimizerValues, error) { return c.optimizer(d, k) }
		} else {
			for _, q := range k.questions(c) {
				one.Quantizer = append(one.Quantizer, func(d sdk.Description) (sdktest.QuantizerValues, error) { return c.quantizer(d, k, q) })
			}
		}
		v.Cases = append(v.Cases, one)
	}
	return v, nil
}

// fileCase is a case of a file.
type fileCase struct {
	id                       string
	params, inputs, expected map[string]any
}

// array reads one of the case's arrays.
func array(from map[string]any, key string) (sdktest.Array, error) {
	v, ok := from[key]
	if !ok {
		return sdktest.Array{}, fmt.Errorf("it has no %q", key)
	}
	a, err := golden.NewArray(v)
	if err != nil {
		return sdktest.Array{}, fmt.Errorf("%s: %w", key, err)
	}
	return sdktest.Array(a), nil
}

// quantizer is what a quantizer is asked.
func (c fileCase) quantizer(d sdk.Description, k kind, q question) (v sdktest.QuantizerValues, err error) {
	v = sdktest.QuantizerValues{Role: q.role, Trained: q.trained}
	if v.Settings, err = k.resolve(d, c, q.settings); err != nil {
		return v, err
	}
	if v.X, err = array(c.inputs, "x"); err != nil {
		return v, err
	}
	if c.inputs["grad_out"] != nil {
		gradient, err := array(c.inputs, "grad_out")
		if err != nil {
			return v, err
		}
		v.GradOut = &gradient
	}
	for _, want := range q.compare {
		of := sdktest.Comparand{Output: want.output, Name: want.key, Factor: want.factor, Exact: want.exact}
		if _, ok := c.expected[want.key]; ok {
			a, err := array(c.expected, want.key)
			if err != nil {
				return v, err
			}
			of.Want = &a
		}
		v.Compare = append(v.Compare, of)
	}
	return v, nil
}

// optimizer is the path of an optimizer.
func (c fileCase) optimizer(d sdk.Description, k kind) (v sdktest.OptimizerValues, err error) {
	v.DecayLast = k.decayLast
	if v.Settings, err = k.resolve(d, c, nil); err != nil {
		return v, err
	}
	for _, a := range []struct {
		to   *sdktest.Array
		from map[string]any
		key  string
	}{{&v.Rates, c.inputs, "lrs"}, {&v.X, c.inputs, "x0"}, {&v.Gradients, c.inputs, "grads"}, {&v.Want, c.expected, "x"}} {
		if *a.to, err = array(a.from, a.key); err != nil {
			return v, err
		}
	}
	if v.Decay, err = golden.Float(c.params[decayKey]); err != nil {
		return v, err
	}
	if c.params["wd_mode"] == "l2" {
		v.Decay = 0
	}
	return v, nil
}
