package sdktest

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

const goldenAsks = "the values of an independent implementation: on the oracle within their tolerance, on devices within that of binary32; codes and masks are equal"

// goldenCloseness takes the place of closeness for golden files, whose tensors are small
// and whose sums are short.
const goldenCloseness = 1e-6

// Array is a list of numbers in row-major order, with its shape.
type Array struct {
	Shape []int
	Data  []float64
}

// check fails where there are not as many numbers as the shape says.
func (a Array) check() error {
	const most = 1 << 40
	size := 1
	for _, d := range a.Shape {
		if d < 0 || d > 0 && size > most/d {
			size = -1
			break
		}
		size *= d
	}
	if size != len(a.Data) {
		return fmt.Errorf("%d numbers cannot have the shape %v", len(a.Data), a.Shape)
	}
	return nil
}

// Values are results of an independent implementation, for [Golden].
type Values struct {
	Name string // what they are of; it names the check
	Kind sdk.Kind
	// Abs and Rel are the tolerance on the oracle: |got − want| ≤ Abs + Rel·|want|.
	Abs, Rel float64
	Cases    []Case
}

// Case is a case of Values, given the description of the plugin under test: what a quantizer is asked, one after the other,
// or what an optimizer is. An error is a failure of the check.
type Case struct {
	ID        string
	Quantizer []func(sdk.Description) (QuantizerValues, error)
	Optimizer func(sdk.Description) (OptimizerValues, error)
}

// QuantizerValues are what a quantizer gives of one tensor.
type QuantizerValues struct {
	Settings map[string]any // in place of those of [With]
	Role     sdk.Role
	Trained  map[string]float64 // values of trained parameters, in all their elements
	// Inputs are the program's inputs besides x, by their names, such as "trained.step"; a single number is repeated. With
	// statistics of columns, such as "activations.max", trained parameters and state start from them and x, and are compared
	// as they start.
	Inputs  map[string]Array
	X       Array
	GradOut *Array // gradient by the value; nil: there are no gradients to compare
	Compare []Comparand
}

// Comparand is an output of a program, or a gradient, that is compared. Multiplied by Factor it must agree with Want, and be
// equal to it if Exact is set.
type Comparand struct {
	Output string
	Name   string // of the expected values, in messages
	Want   *Array // nil: there are none, which is an error where the program has the output
	Factor float64
	Exact  bool
	// Required makes it an error if the plugin does not give the output.
	Required bool
}

// OptimizerValues are the path that an optimizer takes with given gradients and rates.
type OptimizerValues struct {
	Settings map[string]any // in place of those of [With]
	Role     sdk.TensorRole // empty: of a matrix
	X        Array          // where it starts
	// Gradients have the gradient of each step, Rates the rates, and Want, if it is there, the parameter after it.
	Gradients, Want, Rates Array
	// Losses are the losses of the steps, for optimizers that read them.
	Losses Array
	// Path has what else is expected of each step, by name: x, as in Want; direction; and state tensors, such as "state.m".
	Path      map[string]Array
	Decay     float64 // coefficient of decoupled weight decay, which the host applies
	DecayLast bool    // after each step except the first, as code does that returns from its first call before
}

// goldenCase is a case under trial. An error fails the trial and ends what it runs.
type goldenCase struct {
	Case
	t  *trial
	of Values
}

func (c goldenCase) must(err error) {
	if err != nil {
		c.t.must(example{}, fmt.Errorf("case %s: %w", c.ID, err))
	}
}

// goldenStep is the check of values on a plugin of the given kind; run is called for each case.
func goldenStep(v Values, kind sdk.Kind, run func(goldenCase)) step {
	return step{"golden " + v.Name, goldenAsks, func(t *trial) {
		if v.Kind != kind {
			t.failf(example{}, "the values are for plugins of the kind %s", v.Kind)
			return
		}
		for _, c := range v.Cases {
			t.run(func() { run(goldenCase{c, t, v}) })
		}
		t.notef("%d cases", len(v.Cases))
	}}
}

// goldenVariant is the plugin with the settings of a case, which take the place of those given by the caller.
func (s *session) goldenVariant(settings map[string]any) (variant, error) {
	all := maps.Clone(s.settings)
	maps.Copy(all, settings)
	return newVariant(s.about, all)
}

// goldenCase asks the questions of a case and compares the answers, on every machine.
func (q *quantizerRun) goldenCase(c goldenCase) {
	for _, question := range c.Quantizer {
		c.t.run(func() {
			ask, err := question(q.about)
			c.must(err)
			c.must(ask.X.check())
			if ask.GradOut != nil {
				c.must(ask.GradOut.check())
			}
			v, err := q.goldenVariant(ask.Settings)
			c.must(err)
			s, err := q.ask(v, ask.Role, ask.X.Shape...)
			c.must(err)
			if s.evaluation != nil && !ask.trains() && (s.Backward == nil || ask.GradOut == nil) {
				s = s.evaluation
			}
			in := &instance{siteAnswer: s, t: c.t, m: Oracle{}}
			for _, p := range []*program.Program{s.Init, s.InitState} {
				if p == nil || !ask.calibrates() {
					continue
				}
				inputs, err := ask.calibration(p, s.shape)
				c.must(err)
				for name, v := range in.run(p, inputs) { // in binary64, as the values are
					ask.Inputs[name] = Array{v.Type.Shape, v.Float64s()}
				}
			}
			in.trained, err = ask.beside().inputs(s.Program)
			c.must(err)
			q.goldenRuns(c, in, ask)
		})
	}
}

// trains reports whether the values are those of a step of training: they have noise, or the step, or the next state.
func (v QuantizerValues) trains() bool {
	if slices.ContainsFunc(v.Compare, func(c Comparand) bool { return kindOfOutput(c.Output) == spec.KeptPrefix }) {
		return true
	}
	for _, name := range []string{spec.InputNoise, spec.InputSharedNoise, spec.InputStep} {
		if _, ok := v.Inputs[name]; ok {
			return true
		}
	}
	return false
}

// calibrates reports whether the values begin with statistics of columns.
func (v QuantizerValues) calibrates() bool {
	return slices.ContainsFunc(spec.ColumnInputs(nil), func(in program.Input) bool { _, ok := v.Inputs[in.Name]; return ok })
}

// beside is without statistics, and with a map of its own.
func (v QuantizerValues) beside() QuantizerValues {
	v.Inputs = maps.Clone(v.Inputs)
	for _, in := range spec.ColumnInputs(nil) {
		delete(v.Inputs, in.Name)
	}
	return v
}

// calibration are the inputs of a program of initial values.
func (v QuantizerValues) calibration(p *program.Program, shape []int) (map[string]reference.Tensor, error) {
	out := map[string]reference.Tensor{spec.InputX: reference.Floats(v.X.Data, shape...)}
	for _, in := range p.Inputs[1:] {
		a, ok := v.Inputs[in.Name]
		if !ok || len(a.Data) != int(in.Type.Size()) {
			return nil, fmt.Errorf("the plugin's initial values follow from %s, of which the case must have %d numbers", in.Name, in.Type.Size())
		}
		out[in.Name] = reference.Floats(a.Data, in.Type.Shape...)
	}
	return out, nil
}

// inputs are those of a quantizer's program besides x.
func (v QuantizerValues) inputs(p *program.Program) (map[string]reference.Tensor, error) {
	given := maps.Clone(v.Inputs)
	if given == nil {
		given = map[string]Array{}
	}
	for name, value := range v.Trained {
		given[spec.TrainedPrefix+name] = Array{Data: []float64{value}}
	}
	out := map[string]reference.Tensor{}
	for _, in := range p.Inputs {
		if in.Name == spec.InputX {
			continue
		}
		a, ok := given[in.Name]
		delete(given, in.Name)
		if !ok {
			return nil, fmt.Errorf("the plugin's program takes %s, for which the case has no value", in.Name)
		}
		if size := int(in.Type.Size()); len(a.Data) == 1 {
			a = Array{in.Type.Shape, full(a.Data[0], size)}
		}
		if err := a.check(); err != nil || !slices.Equal(a.Shape, in.Type.Shape) {
			return nil, fmt.Errorf("%s has the shape %v, want %v or a single number", in.Name, a.Shape, in.Type.Shape)
		}
		out[in.Name] = tensor(in.Type, a.Data)
	}
	for name := range given {
		return nil, fmt.Errorf("the plugin's program does not take %s, for which the case has a value", name)
	}
	return out, nil
}

// tensor holds numbers as elements of the type.
func tensor(t program.Type, data []float64) reference.Tensor {
	ints, uints, bools := make([]int32, len(data)), make([]uint32, len(data)), make([]bool, len(data))
	for i, v := range data {
		ints[i], uints[i], bools[i] = int32(v), uint32(v), v != 0
	}
	switch t.DType {
	case program.Int:
		return reference.Ints(ints, t.Shape...)
	case program.Uint:
		return reference.Uints(uints, t.Shape...)
	case program.Bool:
		return reference.Bools(bools, t.Shape...)
	}
	return reference.Floats(data, t.Shape...)
}

// goldenRuns runs the program and, when a gradient is asked for, its reverse pass.
func (q *quantizerRun) goldenRuns(c goldenCase, in *instance, ask QuantizerValues) {
	run := func(p *program.Program, inputs map[string]reference.Tensor, of string) {
		e, err := expect(p, inputs)
		c.must(err)
		// Whether every operation has one correct result in binary32.
		orderless := !slices.ContainsFunc(p.Nodes, func(n program.Node) bool { return n.Op.Approximate() })
		for _, m := range q.machines {
			out, err := m.Run(p, inputs)
			c.must(err)
			if m != (Oracle{}) && !e.roundsAsMeant(out) {
				c.must(e.jumps(p, inputs))
			}
			for _, want := range ask.Compare {
				if kindOfOutput(want.Output) == of {
					c.compare(in.example.on(m), want, out, e, orderless)
				}
			}
		}
	}
	run(in.Program, in.inputs(ask.X.Data), "")
	if ask.calibrates() {
		for prefix, p := range map[string]*program.Program{spec.TrainedPrefix: in.Init, spec.KeptPrefix: in.InitState} {
			if p != nil {
				inputs, err := ask.calibration(p, in.shape)
				c.must(err)
				run(p, inputs, prefix)
			}
		}
	} else if in.Next != nil {
		run(in.Next, in.inputsOf(in.Next, ask.X.Data), spec.KeptPrefix)
	}
	if ask.GradOut == nil {
		return
	}
	vjp, err := in.reverse()
	c.must(err)
	run(vjp, in.reverseInputs(vjp, ask.X.Data, ask.GradOut.Data), autodiff.Prefix)
}

// kindOfOutput is the prefix of the name of an output: that of gradients, of the next or first state, of trained parameters as they
// start, or none.
func kindOfOutput(name string) string {
	for _, prefix := range []string{autodiff.Prefix, spec.KeptPrefix, spec.TrainedPrefix} {
		if strings.HasPrefix(name, prefix) {
			return prefix
		}
	}
	return ""
}

// compare compares one output on one machine with what is expected. Outputs that the plugin
// does not give are skipped; it always gives the value.
func (c goldenCase) compare(on example, want Comparand, out map[string]reference.Tensor, e expectation, orderless bool) {
	got, ok := out[want.Output]
	if !ok && want.Required {
		c.must(fmt.Errorf("it expects %s, which the plugin does not give", want.Name))
	}
	if !ok {
		c.t.notef("no %s to compare", want.Output)
		return
	}
	if want.Want == nil {
		c.must(fmt.Errorf("it has no %q", want.Name))
	}
	expected := *want.Want
	spread, base := e.spread[want.Output], goldenCloseness*largest(expected.Data)
	c.within(on, want.Name, scaled(want.Factor, got.Float64s()), expected, want.Exact, func(i int) float64 {
		switch {
		case i >= len(spread):
			return 0
		case want.Exact && orderless && !e.jumped[want.Output][i] && e.single[want.Output].Float64s()[i] == expected.Data[i]:
			return 0 // every operation is exact or correctly rounded, so nothing is left to the device
		case want.Exact:
			return amplification * spread[i]
		}
		return base + want.Factor*amplification*spread[i]
	})
}

// within compares a result with what is expected: on the oracle within the tolerance of the values, or
// exactly if exact is set; on a device within what the function device allows.
func (c goldenCase) within(on example, key string, got []float64, want Array, exact bool, device func(i int) float64) {
	allowed := device
	if on.machine == (Oracle{}).Name() {
		allowed = upTo(0)
		if !exact {
			allowed = func(i int) float64 { return c.of.Abs + c.of.Rel*math.Abs(want.Data[i]) }
		}
	}
	c.t.within(on, "case "+c.ID+": "+key, want.Shape, got, want.Data, allowed)
}

// goldenTraining is a case of an optimizer, which has the parameter after every step.
type goldenTraining struct {
	*tensorAnswer
	goldenCase
	OptimizerValues
}

// goldenCase trains as the case says, on every machine.
func (o *optimizerRun) goldenCase(c goldenCase) {
	g := goldenTraining{goldenCase: c}
	var err error
	g.OptimizerValues, err = c.Optimizer(o.about)
	c.must(err)
	for _, a := range []Array{g.X, g.Gradients, g.Rates} {
		c.must(a.check())
	}
	expected := g.expected()
	if n := len(g.Rates.Data); len(g.Gradients.Data) != n*len(g.X.Data) || len(expected) == 0 {
		c.must(fmt.Errorf("it has %d rates, %v gradients and expects %d results", n, g.Gradients.Shape, len(expected)))
	}
	if g.Role == "" {
		g.Role = sdk.TensorMatrix
	}
	v, err := o.goldenVariant(g.Settings)
	c.must(err)
	g.tensorAnswer, err = o.ask(v, g.Role, g.X.Shape...)
	c.must(err)
	if !g.Accepts {
		c.must(fmt.Errorf("the plugin declines the tensor"))
	}
	if g.ProbeDue.First > 0 {
		c.must(fmt.Errorf("the plugin takes second gradients, of which golden files know nothing: compare them in a test of your own"))
	}
	spread := g.spread()
	for _, m := range o.machines {
		at := g.on(m)
		if g.Opaque { // whatever the machine, it computes in binary32
			at.machine = ""
		}
		got := g.run(m, false, g.X.Data, g.Gradients.Data)
		for _, name := range slices.Sorted(maps.Keys(expected)) {
			want := expected[name]
			if _, ok := got[name]; !ok {
				c.must(fmt.Errorf("it expects %s, which the plugin does not have", name))
			}
			base := goldenCloseness * largest(want.Data)
			c.within(at, name, got[name], want, false, func(i int) float64 { return base + amplification*spread[name][i] })
		}
	}
}

// expected has the arrays that are compared, by name.
func (g goldenTraining) expected() map[string]Array {
	all := maps.Clone(g.Path)
	if all == nil {
		all = map[string]Array{}
	}
	if g.Want.Data != nil {
		all[spec.InputX] = g.Want
	}
	for _, a := range all {
		g.must(a.check())
	}
	return all
}

// run plays the host's part in every step: x ← (1 − αω)·x, then the update u, then x ← x − α·u; or
// the decay last. It returns what each step left: x, the direction and the state.
func (g goldenTraining) run(m Machine, single bool, x, gradients []float64) (all map[string][]float64) {
	all = map[string][]float64{}
	r := g.untrained(g.t, m, x)
	g.must(r.init())
	r.single = r.single || single
	r.steps = float64(len(g.Rates.Data))
	for i, rate := range g.Rates.Data {
		gradient := gradients[i*len(x) : (i+1)*len(x)]
		r.schedule = rate
		if i < len(g.Losses.Data) {
			r.loss = g.Losses.Data[i]
		}
		g.must(r.pace(x, gradient))
		rate, keep := r.rate, 1-r.rate*g.Decay
		if !g.DecayLast {
			x = scaled(keep, x)
		}
		u, err := r.step(x, gradient)
		g.must(err)
		x = axpy(x, -rate, u)
		if g.DecayLast && i > 0 { // the published code returns from its first call before the decay
			x = scaled(keep, x)
		}
		all[spec.InputX] = append(all[spec.InputX], x...)
		all[spec.OutputDirection] = append(all[spec.OutputDirection], u...)
		for name, v := range r.state {
			all[name] = append(all[name], v.Float64s()...)
		}
	}
	return all
}

// spread is how far each element of the path moves with noise in the start and in
// the gradients, and with a state in binary32.
func (g goldenTraining) spread() map[string][]float64 {
	base := g.run(Oracle{}, false, g.X.Data, g.Gradients.Data)
	out := map[string][]float64{}
	for name, v := range base {
		out[name] = make([]float64, len(v))
	}
	for i := range noises + 1 {
		x, gradients := g.X.Data, g.Gradients.Data
		if i > 0 {
			x, gradients = withNoise(x, uint64(i)), withNoise(gradients, uint64(i))
		}
		for name, moved := range g.run(Oracle{}, i == 0, x, gradients) {
			for j, v := range moved {
				out[name][j] = max(out[name][j], distance(v, base[name][j]))
			}
		}
	}
	return out
}
