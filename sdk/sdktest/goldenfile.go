package sdktest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/spec"
)

// GoldenFile is [Golden] with the values of a file. If it cannot be read, the test ends.
func GoldenFile(t testing.TB, path string) Option {
	t.Helper()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	v, err := ParseGolden(file)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return Golden(v)
}

// goldenFile is a file of values.
type goldenFile struct {
	Format      int          `json:"format"`
	Kind        sdk.Kind     `json:"kind"`
	Name        string       `json:"name"`
	Description string       `json:"description"`
	Tolerance   tolerance    `json:"tolerance"`
	Cases       []goldenItem `json:"cases"`
}

type tolerance struct {
	Abs float64 `json:"abs"`
	Rel float64 `json:"rel"`
}

// goldenItem is a case of a file.
type goldenItem struct {
	ID       string            `json:"id"`
	Role     string            `json:"role"`
	Settings map[string]any    `json:"settings"`
	Inputs   map[string]nested `json:"inputs"`
	Expected map[string]nested `json:"expected"`
}

// ParseGolden reads a golden file of any plugin: one JSON object, in which inputs and outputs have the names that they have in
// programs. docs/writing-a-plugin.md describes the format.
func ParseGolden(file []byte) (Values, error) {
	var f goldenFile
	d := json.NewDecoder(strings.NewReader(string(file)))
	d.DisallowUnknownFields()
	d.UseNumber()
	if err := d.Decode(&f); err != nil {
		return Values{}, fmt.Errorf("not a golden file: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Values{}, errors.New("something follows the JSON object")
	}
	switch {
	case f.Format != 1:
		return Values{}, fmt.Errorf("format: is %d, want 1", f.Format)
	case f.Name == "":
		return Values{}, errors.New("name: is absent; it says what the values are of")
	case f.Kind != sdk.KindQuantizer && f.Kind != sdk.KindOptimizer:
		return Values{}, fmt.Errorf("kind: is %q, want quantizer or optimizer", f.Kind)
	case !(f.Tolerance.Abs >= 0 && f.Tolerance.Rel >= 0):
		return Values{}, fmt.Errorf("tolerance: is %v and %v, want numbers of at least 0", f.Tolerance.Abs, f.Tolerance.Rel)
	case len(f.Cases) == 0:
		return Values{}, errors.New("cases: there are none, so nothing would be compared")
	}
	v := Values{Name: f.Name, Kind: f.Kind, Abs: f.Tolerance.Abs, Rel: f.Tolerance.Rel}
	seen := map[string]bool{}
	for i, c := range f.Cases {
		if c.ID == "" || seen[c.ID] {
			return Values{}, fmt.Errorf("cases[%d].id: is %q, want a name that no other case has", i, c.ID)
		}
		seen[c.ID] = true
		if len(c.Expected) == 0 {
			return Values{}, fmt.Errorf("cases[%d] (%s): expected is empty, so nothing would be compared", i, c.ID)
		}
		one := Case{ID: c.ID}
		if f.Kind == sdk.KindOptimizer {
			one.Optimizer = c.optimizer
		} else {
			one.Quantizer = []func(sdk.Description) (QuantizerValues, error){c.quantizer}
		}
		v.Cases = append(v.Cases, one)
	}
	return v, nil
}

// gradientOf names the gradient by an input or output.
func gradientOf(name string) string { return autodiff.Prefix + name }

// quantizer is what a quantizer is asked.
func (c goldenItem) quantizer(d sdk.Description) (v QuantizerValues, err error) {
	v = QuantizerValues{Role: sdk.RoleWeight, Inputs: map[string]Array{}}
	if c.Role != "" {
		v.Role = sdk.Role(c.Role)
	}
	if v.Settings, err = c.settings(d); err != nil {
		return v, err
	}
	var given bool
	for name, a := range c.Inputs {
		switch name {
		case spec.InputX:
			v.X, given = Array(a), true
		case gradientOf(spec.OutputValue):
			v.GradOut = (*Array)(&a)
		default:
			v.Inputs[name] = Array(a)
		}
	}
	if !given {
		return v, fmt.Errorf("inputs: it has no %q", spec.InputX)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Expected)) {
		if strings.HasPrefix(name, autodiff.Prefix) && v.GradOut == nil {
			return v, fmt.Errorf("expected: %q needs the input %q, the gradient by the value", name, gradientOf(spec.OutputValue))
		}
		want := Array(c.Expected[name])
		exact := name == spec.OutputCodes || name == spec.OutputMask
		v.Compare = append(v.Compare, Comparand{Output: name, Name: name, Want: &want, Factor: 1, Exact: exact, Required: true})
	}
	return v, nil
}

// The inputs of an optimizer's case that are the host's part.
const (
	goldenRate  = spec.InputRate
	goldenDecay = "weight_decay"
)

// optimizer is the path of an optimizer.
func (c goldenItem) optimizer(d sdk.Description) (v OptimizerValues, err error) {
	v = OptimizerValues{Role: sdk.TensorMatrix, Path: map[string]Array{}}
	if c.Role != "" {
		v.Role = sdk.TensorRole(c.Role)
	}
	if v.Settings, err = c.settings(d); err != nil {
		return v, err
	}
	for name, a := range c.Inputs {
		switch name {
		case spec.InputX:
			v.X = Array(a)
		case spec.InputGradient:
			v.Gradients = Array(a)
		case goldenRate:
			v.Rates = Array(a)
		case spec.InputLoss:
			v.Losses = Array(a)
		case goldenDecay:
			if len(a.Data) != 1 {
				return v, fmt.Errorf("inputs: %s is not a number", name)
			}
			v.Decay = a.Data[0]
		default:
			return v, fmt.Errorf("inputs: unknown %q; known are %s, %s, %s, %s and %s", name, spec.InputX, spec.InputGradient, goldenRate, goldenDecay, spec.InputLoss)
		}
	}
	if len(v.Gradients.Shape) == 0 || len(v.X.Data) == 0 {
		return v, fmt.Errorf("inputs: it needs %s, and %s with a tensor for each update", spec.InputX, spec.InputGradient)
	}
	steps := v.Gradients.Shape[0]
	if n := len(v.Losses.Data); n != 0 && n != steps {
		return v, fmt.Errorf("inputs: %d losses for %d gradients", n, steps)
	}
	switch len(v.Rates.Data) {
	case 0: // x stays where it is
		v.Rates = Array{Shape: []int{steps}, Data: full(0, steps)}
	case 1:
		v.Rates = Array{Shape: []int{steps}, Data: full(v.Rates.Data[0], steps)}
	}
	for name, a := range c.Expected {
		v.Path[name] = Array(a)
	}
	return v, nil
}

// settings are those of the case, with the types that the plugin declares.
func (c goldenItem) settings(d sdk.Description) (map[string]any, error) {
	settings := map[string]any{}
	for name, v := range c.Settings {
		settings[name] = v
		n, isNumber := v.(json.Number)
		if !isNumber {
			continue
		}
		i := slices.IndexFunc(d.Parameters, func(p sdk.Parameter) bool { return p.Name == name })
		var err error
		if whole, e := n.Int64(); e == nil && !(i >= 0 && d.Parameters[i].Type == sdk.TypeFloat) {
			settings[name] = int(whole)
		} else if settings[name], err = n.Float64(); err != nil {
			return nil, fmt.Errorf("settings: %s: %w", name, err)
		}
	}
	return settings, nil
}

// nested is an [Array] as nested lists of JSON. The strings "NaN", "Inf" and "-Inf" are numbers, and so are true and false, as 1
// and 0.
type nested Array

// UnmarshalJSON reads the lists, which have to be of equal length.
func (a *nested) UnmarshalJSON(text []byte) error {
	var list []json.RawMessage
	if text[0] != '[' { // json hands over a value without the space around it
		v, err := element(text)
		*a = nested{Shape: []int{}, Data: []float64{v}}
		return err
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	out := nested{Shape: []int{len(list)}}
	for i, item := range list {
		var part nested
		if err := part.UnmarshalJSON(item); err != nil {
			return err
		}
		if i == 0 {
			out.Shape = append(out.Shape, part.Shape...)
		} else if !slices.Equal(part.Shape, out.Shape[1:]) {
			return fmt.Errorf("lists of different lengths: element %d has the shape %v, the first %v", i, part.Shape, out.Shape[1:])
		}
		out.Data = append(out.Data, part.Data...)
	}
	*a = out
	return nil
}

// element reads a number.
func element(text []byte) (float64, error) {
	switch string(text) {
	case "true":
		return 1, nil
	case "false":
		return 0, nil
	case "null":
		return 0, errors.New("null is not a number")
	}
	var n Number
	err := n.UnmarshalJSON(text)
	return float64(n), err
}
