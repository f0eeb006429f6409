package sdktest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// Inputs of a case that are not inputs of programs: the gradient with respect to the value, and the
// host's weight decay. With decayLast, weights decay after each step except the first.
const (
	inputDY   = autodiff.Prefix + spec.OutputValue
	decayName = "weight_decay"
	decayLast = "decay_last"
)

// Values holds the results of an independent implementation, for [Golden].
type Values struct {
	Name     string // name of the implementation or file; it names the check
	Kind     sdk.Kind
	abs, rel float64 // |got − want| ≤ abs + rel·|want|
	cases    []goldenCase
}

// GoldenFile is [Golden] with the values in a file. If it cannot be read, the test fails at once.
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

type goldenCase struct {
	ID       string           `json:"id"`
	Role     string           `json:"role"`
	Settings map[string]any   `json:"settings"` // in addition to those of [With]
	Inputs   map[string]array `json:"inputs"`
	Expected map[string]array `json:"expected"`
}

// ParseGolden parses a golden file: one JSON object, whose inputs and outputs are named as in
// programs. docs/reference/sdk.md describes the format.
func ParseGolden(file []byte) (Values, error) {
	var f struct {
		Format      int      `json:"format"`
		Kind        sdk.Kind `json:"kind"`
		Name        string   `json:"name"`
		Description string   `json:"description"`
		Tolerance   struct {
			Abs float64 `json:"abs"`
			Rel float64 `json:"rel"`
		} `json:"tolerance"`
		Cases []goldenCase `json:"cases"`
	}
	d := json.NewDecoder(strings.NewReader(string(file)))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return Values{}, fmt.Errorf("not a golden file: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Values{}, errors.New("unexpected data after the JSON object")
	}
	abs, rel := f.Tolerance.Abs, f.Tolerance.Rel
	switch {
	case f.Format != 1:
		return Values{}, fmt.Errorf("format: is %d, want 1", f.Format)
	case f.Name == "":
		return Values{}, errors.New("name: is missing: want the name of the implementation")
	case f.Kind != sdk.KindQuantizer && f.Kind != sdk.KindOptimizer:
		return Values{}, fmt.Errorf("kind: got %q, want quantizer or optimizer", f.Kind)
	case !(abs >= 0 && rel >= 0):
		return Values{}, fmt.Errorf("tolerance: got %v and %v, want numbers of at least 0", abs, rel)
	case len(f.Cases) == 0:
		return Values{}, errors.New("cases: want at least one")
	}
	seen := map[string]bool{}
	for i, c := range f.Cases {
		if c.ID == "" || seen[c.ID] {
			return Values{}, fmt.Errorf("cases[%d].id: got %q, want a name that no other case has", i, c.ID)
		}
		seen[c.ID] = true
		if len(c.Expected) == 0 {
			return Values{}, fmt.Errorf("cases[%d] (%s): expected is empty: nothing to compare", i, c.ID)
		}
	}
	return Values{Name: f.Name, Kind: f.Kind, abs: abs, rel: rel, cases: f.Cases}, nil
}

// array is a row-major array with its shape. In JSON it is a nested list. The strings "NaN", "Inf"
// and "-Inf" are numbers, and true and false are 1 and 0.
type array struct {
	shape []int
	data  []float64
}

// UnmarshalJSON decodes nested lists, which must have equal lengths at each level.
func (a *array) UnmarshalJSON(text []byte) error {
	if text[0] != '[' { // json strips surrounding whitespace
		var n Number
		switch string(text) {
		case "true":
			n = 1
		case "false":
		case "null":
			return errors.New("null is not a number")
		default:
			if err := n.UnmarshalJSON(text); err != nil {
				return err
			}
		}
		*a = array{shape: []int{}, data: []float64{float64(n)}}
		return nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	out := array{shape: []int{len(list)}}
	for i, item := range list {
		var part array
		if err := part.UnmarshalJSON(item); err != nil {
			return err
		}
		if i == 0 {
			out.shape = append(out.shape, part.shape...)
		} else if !slices.Equal(part.shape, out.shape[1:]) {
			return fmt.Errorf("lists of different lengths: element %d has the shape %v, the first %v",
				i, part.shape, out.shape[1:])
		}
		out.data = append(out.data, part.data...)
	}
	*a = out
	return nil
}

// goldenTrial runs one case. An error fails the trial and ends the case.
type goldenTrial struct {
	goldenCase
	t        *trial
	of       Values
	compared map[string]bool // names of expected values
}

func (c goldenTrial) must(err error) {
	if err != nil {
		c.t.must(example{}, fmt.Errorf("case %s: %w", c.ID, err))
	}
}

// goldenChecks returns a check for each of the caller's Values; run is called for each case.
func (s *session) goldenChecks(run func(goldenTrial)) (list []check) {
	const asks = "values of an independent implementation, within their tolerance; codes equal"
	for _, v := range s.golden {
		list = append(list, check{"golden " + v.Name, asks, func(t *trial) {
			if v.Kind != s.report.Kind {
				t.failf(example{}, "the values are for plugins of the kind %s", v.Kind)
				return
			}
			for _, c := range v.cases {
				t.run(func() {
					g := goldenTrial{c, t, v, map[string]bool{}}
					run(g)
					g.complete()
				})
			}
			t.notef("%d cases", len(v.cases))
		}, ""})
	}
	return list
}

// complete fails the case if expected values were not compared.
func (c goldenTrial) complete() {
	for name := range inOrder(c.Expected) {
		if !c.compared[name] {
			c.must(fmt.Errorf("expected: the case computes no %s: initial values need column statistics "+
				"among the inputs, and next values a plugin with state", name))
		}
	}
}

func (c goldenTrial) variant(s *session) variant {
	all := maps.Clone(s.settings)
	for name, v := range c.Settings {
		if f, ok := v.(float64); ok && f == math.Trunc(f) && math.Abs(f) <= 1<<53 {
			v = int(f) // parameters of both types accept an integer
		}
		all[name] = v
	}
	v, err := newVariant(s.about, all)
	c.must(err)
	return v
}

// compare compares got with the expected values that have the prefix, all of which got must
// contain. besides, times the largest expected magnitude, is added to the tolerance.
func (c goldenTrial) compare(on example, prefix string, got map[string][]float64, besides float64) {
	for name, want := range inOrder(c.Expected) {
		if prefixOf(name) != prefix {
			continue
		}
		c.compared[name] = true
		if _, ok := got[name]; !ok {
			c.must(fmt.Errorf("expected: the plugin does not return %s", name))
		}
		c.t.within(on, "case "+c.ID+": "+name, want.shape, got[name], want.data, func(i int) float64 {
			if name == spec.OutputCodes || name == spec.OutputMask {
				return 0
			}
			return tolerance(c.of.abs+besides*largest(want.data), c.of.rel, want.data[i])
		})
	}
}

func (q *quantizerRun) goldenCase(c goldenTrial) {
	x, ok := c.Inputs[spec.InputX]
	if !ok {
		c.must(fmt.Errorf("inputs: %q is missing", spec.InputX))
	}
	dy, backward := c.Inputs[inputDY]
	// A case about training has step inputs, or expects the next state.
	trains := slices.ContainsFunc(spec.StepInputs, func(in program.Input) bool {
		_, ok := c.Inputs[in.Name]
		return ok
	})
	for name := range c.Expected {
		prefix := prefixOf(name)
		trains = trains || prefix == spec.KeptPrefix
		if prefix == autodiff.Prefix && !backward {
			c.must(fmt.Errorf("expected: %q needs the input %q, the gradient with respect to the value",
				name, inputDY))
		}
	}
	s, err := q.ask(c.variant(q.session), sdk.Role(cmp.Or(c.Role, "weight")), x.shape...)
	c.must(err)
	if s.evaluation != nil && !trains && (s.Backward == nil || !backward) {
		s = s.evaluation
	}
	in := &instance{siteAnswer: s, t: c.t, m: Reference{}, memory: tensors{}}
	given := maps.Clone(c.Inputs)
	delete(given, inputDY)
	// A case with column statistics tests initial values, in binary64 like the expected ones.
	starts := map[string]*program.Program{} // by the prefix of their outputs
	startInputs := map[string]tensors{}
	for _, column := range spec.ColumnInputs(nil) {
		if _, ok := given[column.Name]; ok {
			delete(given, column.Name)
			starts = map[string]*program.Program{spec.TrainedPrefix: s.Init, spec.KeptPrefix: s.InitState}
		}
	}
	maps.DeleteFunc(starts, func(_ string, p *program.Program) bool { return p == nil })
	for prefix, p := range starts {
		startInputs[prefix] = tensors{}
		for _, input := range p.Inputs {
			a, ok := c.Inputs[input.Name]
			if !ok || len(a.data) != int(input.Type.Size()) {
				c.must(fmt.Errorf("inputs: the plugin's initial values need %s with %d numbers",
					input.Name, input.Type.Size()))
			}
			startInputs[prefix][input.Name] = reference.Floats(a.data, input.Type.Shape...)
		}
		for name, v := range in.run(p, startInputs[prefix]) {
			given[name] = array{v.Type.Shape, v.Float64s()}
		}
	}
	for _, input := range s.Program.Inputs {
		a, ok := given[input.Name]
		delete(given, input.Name)
		if !ok {
			c.must(fmt.Errorf("inputs: the plugin's program needs %s", input.Name))
		}
		if input.Name == spec.InputX {
			continue
		}
		if len(a.data) == 1 { // a scalar is broadcast
			a = array{input.Type.Shape, full(a.data[0], int(input.Type.Size()))}
		}
		if !slices.Equal(a.shape, input.Type.Shape) {
			c.must(fmt.Errorf("%s has shape %v, want %v or a scalar", input.Name, a.shape, input.Type.Shape))
		}
		v := reference.Floats(a.data, input.Type.Shape...)
		if input.Type.DType != program.Float {
			v = reference.Tensor{Type: input.Type}
			for _, x := range a.data {
				v.Ints = append(v.Ints, int64(x))
			}
		}
		in.memory[input.Name] = v
	}
	for name := range given {
		c.must(fmt.Errorf("inputs: the plugin's program has no input %s", name))
	}
	compare := func(p *program.Program, inputs tensors, prefix string) {
		if devices := q.machines[1:]; len(devices) > 0 {
			c.t.compare(in.example, devices, "case "+c.ID+": ", p, inputs)
		}
		got := map[string][]float64{}
		for name, v := range in.run(p, inputs) {
			got[name] = v.Float64s()
		}
		c.compare(in.at(), prefix, got, 0)
	}
	compare(s.Program, in.inputs(in.Program, x.data), "")
	for prefix, p := range starts {
		compare(p, startInputs[prefix], prefix)
	}
	if in.Next != nil && len(starts) == 0 {
		compare(in.Next, in.inputs(in.Next, x.data), spec.KeptPrefix)
	}
	if backward {
		vjp, err := in.reverse()
		c.must(err)
		compare(vjp, in.reverseInputs(vjp, x.data, dy.data), autodiff.Prefix)
	}
}

// prefixOf returns the prefix of an output's name: that of gradients, of state or of trained
// parameters, or "".
func prefixOf(name string) string {
	for _, prefix := range []string{autodiff.Prefix, spec.KeptPrefix, spec.TrainedPrefix} {
		if strings.HasPrefix(name, prefix) {
			return prefix
		}
	}
	return ""
}

func (o *optimizerRun) goldenCase(c goldenTrial) {
	known := []string{
		spec.InputX, spec.InputGradient, spec.InputRate, decayName, spec.InputLoss, decayLast}
	for name := range c.Inputs {
		if !slices.Contains(known, name) {
			c.must(fmt.Errorf("inputs: unknown %q; known are %q", name, known))
		}
	}
	x, gradients := c.Inputs[spec.InputX], c.Inputs[spec.InputGradient]
	if len(gradients.shape) == 0 || len(x.data) == 0 {
		c.must(fmt.Errorf("inputs: want %s, and %s with a tensor for each update",
			spec.InputX, spec.InputGradient))
	}
	steps := gradients.shape[0]
	rates := c.Inputs[spec.InputRate].data
	switch len(rates) {
	case 0: // x does not change
		rates = full(0, steps)
	case 1:
		rates = full(rates[0], steps)
	}
	last, given := c.Inputs[decayLast]
	decaysLast := given && slices.Equal(last.data, []float64{1})
	if given && !decaysLast && !slices.Equal(last.data, []float64{0}) {
		c.must(fmt.Errorf("inputs: %s is %v, want true or false", decayLast, last.data))
	}
	losses, decays := len(c.Inputs[spec.InputLoss].data), len(c.Inputs[decayName].data)
	wrong := len(rates) != steps || len(gradients.data) != steps*len(x.data)
	if wrong || losses > 0 && losses != steps || decays > 1 {
		c.must(fmt.Errorf("inputs: got %d rates, gradients of shape %v, %d losses and %d weight decays",
			len(rates), gradients.shape, losses, decays))
	}
	s, err := o.ask(c.variant(o.session), sdk.TensorRole(cmp.Or(c.Role, "matrix")), x.shape...)
	c.must(err)
	switch {
	case !s.Accepts:
		c.must(errors.New("the plugin declines the tensor"))
	case s.ProbeDue.First > 0:
		c.must(errors.New("golden files do not support second gradients: compare them in your own test"))
	case losses == 0 && s.HasInput(spec.InputLoss):
		c.must(fmt.Errorf("inputs: the plugin reads %s: want one for each of %d updates",
			spec.InputLoss, steps))
	}
	// In every step the host computes x ← (1 − αω)·x before the update and x ← x − α·u after it.
	// With decayLast the decay comes last.
	got, at := map[string][]float64{}, x.data
	r := s.untrained(c.t, Reference{}, at)
	r.exact, r.steps = true, float64(steps)
	c.must(r.init())
	decay := 0.0
	if decays > 0 {
		decay = c.Inputs[decayName].data[0]
	}
	for i, rate := range rates {
		gradient := gradients.data[i*len(at) : (i+1)*len(at)]
		if r.schedule = rate; losses > 0 {
			r.loss = c.Inputs[spec.InputLoss].data[i]
		}
		c.must(r.pace(at, gradient))
		rate, keep := r.rate, 1-r.rate*decay
		if !decaysLast {
			at = scaled(keep, at)
		}
		u, err := r.step(at, gradient)
		c.must(err)
		if at = axpy(at, -rate, u); decaysLast && i > 0 {
			at = scaled(keep, at)
		}
		got[spec.InputX] = append(got[spec.InputX], at...)
		got[spec.OutputDirection] = append(got[spec.OutputDirection], u...)
		for name, v := range r.state {
			got[name] = append(got[name], v.Float64s()...)
		}
	}
	besides := 0.0
	if s.Opaque { // an opaque optimizer computes in binary32
		besides = 1e-6
	}
	c.compare(s.on(Reference{}), "", got, besides)
}
