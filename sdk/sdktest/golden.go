package sdktest

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/cage-qat/cage/internal/golden"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/reference"
)

const goldenAsks = "the values of an independent implementation: on the oracle within the file's tolerance, on devices within that of binary32; codes and masks are equal"

// goldenCloseness takes the place of closeness for golden files, whose tensors are small
// and whose sums are short.
const goldenCloseness = 1e-6

// GoldenKind returns the kind of plugin that a golden file is for. The error says what is
// wrong with the file, or that no plugin computes its values.
func GoldenKind(file []byte) (sdk.Kind, error) {
	f, err := golden.Parse(file)
	if err != nil {
		return "", err
	}
	k, ok := goldenKinds[f.Name]
	if !ok {
		return "", fmt.Errorf("the file holds values of %q; those that plugins can be compared with are %s",
			f.Name, strings.Join(slices.Sorted(maps.Keys(goldenKinds)), ", "))
	}
	return k.kind, nil
}

// goldenCase is a case of a file that holds values for the plugin under test. An error
// fails the trial and ends the case.
type goldenCase struct {
	t                        *trial
	kind                     goldenKind
	id                       string
	params, inputs, expected map[string]any
	tolerance                golden.Tolerance
}

func (c goldenCase) must(err error) {
	if err != nil {
		c.t.must(example{}, fmt.Errorf("case %s: %w", c.id, err))
	}
}

// array reads one of the case's arrays.
func (c goldenCase) array(from map[string]any, key string) golden.Array {
	v, ok := from[key]
	if !ok {
		c.must(fmt.Errorf("it has no %q", key))
	}
	a, err := golden.NewArray(v)
	if err != nil {
		c.must(fmt.Errorf("%s: %w", key, err))
	}
	return a
}

// goldenStep is the check of one file on a plugin of the given kind; run is called for
// each case that applies.
func goldenStep(file []byte, kind sdk.Kind, run func(goldenCase)) step {
	of, err := GoldenKind(file)
	if err != nil {
		return step{"golden file", goldenAsks, func(t *trial) { t.failf(example{}, "%v", err) }}
	}
	f, _ := golden.Parse(file)
	return step{"golden " + f.Name, goldenAsks, func(t *trial) {
		if of != kind {
			t.failf(example{}, "the file is for plugins of the kind %s", of)
			return
		}
		ran := 0
		for _, m := range f.Cases {
			part := func(key string) map[string]any { object, _ := m[key].(map[string]any); return object }
			id, _ := m["id"].(string)
			c := goldenCase{t, goldenKinds[f.Name], id, part("params"), part("inputs"), part("expected"), f.Tolerance}
			if c.kind.applies == nil || c.kind.applies(c) {
				t.run(func() { run(c) })
				ran++
			}
		}
		t.notef("%d cases", ran)
	}}
}

// goldenCase asks the questions of a case and compares the answers with the file, on every machine.
func (q *quantizerRun) goldenCase(c goldenCase) {
	for _, ask := range c.kind.questions(c) {
		c.t.run(func() {
			v, err := c.kind.resolve(q.about, q.settings, c, ask.settings)
			c.must(err)
			x := c.array(c.inputs, "x")
			s, err := q.ask(v, ask.role, x.Shape...)
			c.must(err)
			in := &instance{siteAnswer: s, trained: map[string]reference.Tensor{}}
			for _, p := range s.Trained {
				v, ok := ask.trained[p.Name]
				if !ok {
					c.must(fmt.Errorf("the plugin trains %s, for which the case has no value", p.Name))
				}
				size := program.FloatType(p.Shape...).Size()
				in.trained[sdk.TrainedPrefix+p.Name] = reference.Floats(full(v, int(size)), p.Shape...)
			}
			if len(s.Trained) < len(ask.trained) {
				c.must(fmt.Errorf("the plugin does not train the parameters of the case"))
			}
			q.goldenRuns(c, in, x.Data, ask)
		})
	}
}

// goldenRuns runs the program and, when a gradient is asked for, its reverse pass.
func (q *quantizerRun) goldenRuns(c goldenCase, in *instance, x []float64, ask question) {
	run := func(p *program.Program, inputs map[string]reference.Tensor, gradients bool) {
		e, err := expect(p, inputs)
		c.must(err)
		for _, m := range q.machines {
			out, err := m.Run(p, inputs)
			c.must(err)
			for _, want := range ask.compare {
				if strings.HasPrefix(want.output, autodiff.Prefix) == gradients {
					c.compare(in.example.on(m), want, out, e, orderless(p))
				}
			}
		}
	}
	run(in.Program, in.inputs(x), false)
	if c.inputs["grad_out"] == nil {
		return
	}
	vjp, err := in.reverse()
	c.must(err)
	run(vjp, in.reverseInputs(x, c.array(c.inputs, "grad_out").Data), true)
}

// compare compares one output on one machine with the file. Outputs that the plugin
// does not give are skipped; it always gives the value.
func (c goldenCase) compare(on example, want comparand, out map[string]reference.Tensor, e expectation, orderless bool) {
	got, ok := out[want.output]
	if !ok {
		c.t.notef("no %s to compare", want.output)
		return
	}
	expected := c.array(c.expected, want.key)
	spread, base := e.spread[want.output], goldenCloseness*golden.Largest(expected.Data)
	c.within(on, want.key, scaled(want.factor, got.Float64s()), expected, want.exact, func(i int) float64 {
		switch {
		case i >= len(spread):
			return 0
		case want.exact && orderless && e.single[want.output].Float64s()[i] == expected.Data[i]:
			return 0 // every operation is exact or correctly rounded, so nothing is left to the device
		case want.exact:
			return amplification * spread[i]
		}
		return base + want.factor*amplification*spread[i]
	})
}

// within compares a result with the file: on the oracle within the file's tolerance, or
// exactly if exact is set; on a device within what the function device allows.
func (c goldenCase) within(on example, key string, got []float64, want golden.Array, exact bool, device func(i int) float64) {
	allowed := device
	if on.machine == (Oracle{}).Name() {
		allowed = upTo(0)
		if !exact {
			allowed = func(i int) float64 { return c.tolerance.Abs + c.tolerance.Rel*math.Abs(want.Data[i]) }
		}
	}
	c.t.within(on, "case "+c.id+": "+key, want.Shape, got, want.Data, allowed)
}

// orderless reports whether every operation of a program has one correct result in
// binary32.
func orderless(p *program.Program) bool {
	return !slices.ContainsFunc(p.Nodes, func(n program.Node) bool { return n.Op.Approximate() })
}
