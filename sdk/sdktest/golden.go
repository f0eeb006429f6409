package sdktest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cage-qat/cage/internal/goldenfile"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/reference"
)

const goldenAsks = "the values of an independent implementation: on the oracle within the file's tolerance, on devices within that of binary32; codes and masks are equal"

// goldenCloseness is closeness for golden files, whose tensors are small and whose sums
// are short.
const goldenCloseness = 1e-6

// GoldenKind returns the kind of plugins that a golden file is for. The error says
// what is wrong with the file, or that no plugin computes its values.
func GoldenKind(file []byte) (sdk.Kind, error) {
	f, err := goldenfile.Parse(file)
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

// goldenCase is a case of a file.
type goldenCase struct {
	id                       string
	params, inputs, expected map[string]any
	tolerance                goldenfile.Tolerance
}

// tensor reads one of the case's arrays.
func (c goldenCase) tensor(from map[string]any, key string) (goldenfile.Tensor, error) {
	v, ok := from[key]
	if !ok {
		return goldenfile.Tensor{}, fmt.Errorf("it has no %q", key)
	}
	t, err := goldenfile.NewTensor(v)
	if err != nil {
		return t, fmt.Errorf("%s: %w", key, err)
	}
	return t, nil
}

// goldenStep is the check of one file; run is called for each case that applies.
func goldenStep(file []byte, kind sdk.Kind, run func(t *trial, k goldenKind, c goldenCase)) step {
	of, err := GoldenKind(file)
	if err != nil {
		return step{"golden file", goldenAsks, func(t *trial) { t.failf(place{}, "%v", err) }}
	}
	f, _ := goldenfile.Parse(file)
	return step{"golden " + f.Name, goldenAsks, func(t *trial) {
		if of != kind {
			t.failf(place{}, "the file is for plugins of the kind %s", of)
			return
		}
		k := goldenKinds[f.Name]
		ran := 0
		for _, m := range f.Cases {
			part := func(key string) map[string]any { object, _ := m[key].(map[string]any); return object }
			id, _ := goldenfile.Text(m["id"])
			c := goldenCase{id, part("params"), part("inputs"), part("expected"), f.Tolerance}
			if k.applies == nil || k.applies(c) {
				run(t, k, c)
				ran++
			}
		}
		t.notef("%d cases", ran)
	}}
}

func (q *quantizerRun) goldenSteps(file []byte) []step {
	return []step{goldenStep(file, sdk.KindQuantizer, func(t *trial, k goldenKind, c goldenCase) {
		for _, question := range k.questions(c) {
			if err := q.goldenCase(t, k, c, question); err != nil {
				t.failf(place{}, "case %s: %v", c.id, err)
			}
		}
	})}
}

// goldenCase puts one question of a case on every machine.
func (q *quantizerRun) goldenCase(t *trial, k goldenKind, c goldenCase, ask question) error {
	v, err := k.resolve(q.about, q.settings, c, ask.settings)
	if err != nil {
		return err
	}
	x, err := c.tensor(c.inputs, "x")
	if err != nil {
		return err
	}
	s, err := q.ask(v, ask.role, x.Shape...)
	if err != nil {
		return err
	}
	in := &instance{site: s, m: oracle{}, trained: map[string]reference.Tensor{}}
	if err := in.setTrained(ask.trained); err != nil {
		return err
	}
	return q.goldenPrograms(t, c, in, x.Data, ask)
}

// setTrained gives the trained parameters the values of a case.
func (in *instance) setTrained(values map[string]float64) error {
	for _, p := range in.Trained {
		v, ok := values[p.Name]
		if !ok {
			return fmt.Errorf("the plugin trains %s, for which the case has no value", p.Name)
		}
		size := program.FloatType(p.Shape...).Size()
		in.trained[sdk.TrainedPrefix+p.Name] = reference.Floats(full(v, int(size)), p.Shape...)
	}
	if len(in.Trained) < len(values) {
		return errors.New("the plugin does not train the parameters of the case")
	}
	return nil
}

// goldenPrograms runs the program and, when a gradient is asked for, its reverse
// pass.
func (q *quantizerRun) goldenPrograms(t *trial, c goldenCase, in *instance, x []float64, ask question) error {
	run := func(p *program.Program, inputs map[string]reference.Tensor, gradients bool) error {
		e, err := expect(p, inputs)
		if err != nil {
			return err
		}
		for _, m := range q.machines {
			out, err := m.Run(p, inputs)
			if err != nil {
				return err
			}
			for _, want := range ask.compare {
				if isGradient := want.output[:min(2, len(want.output))] == autodiff.Prefix; isGradient != gradients {
					continue
				}
				if err := c.compare(t, in.site.place.on(m), want, out, e, orderless(p)); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := run(in.Program, in.inputs(x), false); err != nil {
		return err
	}
	dy, err := c.tensor(c.inputs, "grad_out")
	if err != nil {
		return nil // none is asked for
	}
	vjp, err := in.reverse()
	if err != nil {
		return err
	}
	inputs := in.inputs(x)
	inputs[autodiff.Prefix+sdk.OutputSurrogate] = reference.Floats(dy.Data, in.shape...)
	return run(vjp, inputs, true)
}

// compare compares one output on one machine with the file. Outputs that the plugin
// does not give are passed over, but for the value.
func (c goldenCase) compare(t *trial, p place, want comparand, out map[string]reference.Tensor, e expectation, orderless bool) error {
	got, ok := out[want.output]
	if !ok {
		t.notef("no %s to compare", want.output)
		return nil
	}
	expected, err := c.tensor(c.expected, want.key)
	if err != nil {
		return err
	}
	spread, base := e.spread[want.output], goldenCloseness*largest(expected.Data)
	t.within(p, "case "+c.id+": "+want.key, expected.Shape, scaled(want.factor, got.Float64s()), expected.Data, func(i int) float64 {
		switch {
		case p.machine == oracle{}.Name() && want.exact:
			return 0
		case p.machine == oracle{}.Name():
			return c.tolerance.Abs + c.tolerance.Rel*abs(expected.Data[i])
		case i >= len(spread):
			return 0
		case want.exact && orderless && e.single[want.output].Float64s()[i] == expected.Data[i]:
			return 0 // every operation is exact or correctly rounded, and so nothing is left to the device
		case want.exact:
			return amplification * spread[i]
		}
		return base + want.factor*amplification*spread[i]
	})
	return nil
}

// orderless reports whether every operation of a program has one correct result in
// binary32: no sums, no functions that are only approximated.
func orderless(p *program.Program) bool {
	for _, n := range p.Nodes {
		info, _ := n.Op.Info()
		switch {
		case info.Class == program.ClassLinear, n.Op == program.OpReduceSum:
			return false
		case slices.Contains([]program.Op{program.OpExp, program.OpExpm1, program.OpLog, program.OpLog1p, program.OpTanh, program.OpPow}, n.Op):
			return false
		}
	}
	return true
}

func abs(v float64) float64 { return max(v, -v) }
