package fakequant

import (
	"slices"

	"github.com/cage-qat/cage/host/compute/calls"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
	"github.com/cage-qat/cage/sdk/spec"
)

// Calibration returns calls that quantize an activation for the first time. init returns the
// initial values of the trained parameters and of the state, by the names of the quantizer's
// inputs; it is nil if there are none. With several replicas, these are means or maxima over all.
// quantize returns the value that the quantizer then has. Both take x, the column statistics that
// the initial values are computed from, and the trained parameters in known, which have values
// already.
func (q *Quantizer) Calibration(known []string, replicas int) (init, quantize *program.Call,
	err error) {
	types := map[string]program.Type{}
	names := []string{spec.InputX}
	declare := func(list []program.Input) {
		for _, in := range list {
			if types[in.Name] = in.Type; !slices.Contains(names, in.Name) {
				names = append(names, in.Name)
			}
		}
	}
	var parts []*program.Program
	for _, p := range []*program.Program{q.spec.Init, q.spec.InitState} {
		if p != nil {
			parts = append(parts, p)
			declare(p.Inputs)
		}
	}
	forward := q.parts.Forward
	declare(slices.DeleteFunc(slices.Clone(forward.Inputs), func(in program.Input) bool {
		return in.Name != spec.InputX && !slices.Contains(known, in.Name)
	}))
	inputs := func(b *program.Builder) (args []program.Value, byName map[string]program.Value) {
		byName = map[string]program.Value{}
		for _, name := range names {
			byName[name] = b.Input(name, types[name])
			args = append(args, byName[name])
		}
		return args, byName
	}
	pick := func(from map[string]program.Value, p *program.Program) []program.Value {
		return lists.Map(p.Inputs, func(in program.Input) program.Value { return from[in.Name] })
	}

	b := program.NewSimplifier("initial-values")
	_, in := inputs(b)
	for _, p := range parts {
		out := transform.Inline(b, p, pick(in, p)...)
		for _, o := range p.Outputs {
			if v := out[o.Name]; !slices.Contains(known, o.Name) {
				switch {
				case replicas == 1:
				case q.isMaximum(o.Name):
					v = calls.MaximumOverReplicas(v)
				default:
					v = calls.MeanOverReplicas(v, replicas)
				}
				b.Output(o.Name, v)
				init = &program.Call{Name: "initial-values"}
			}
		}
	}
	if init != nil {
		if init.Meaning, err = b.Build(); err != nil {
			return nil, nil, err
		}
	}
	b = program.NewSimplifier("calibrate")
	args, in := inputs(b)
	if init != nil {
		for i, v := range b.Call(init, args...) {
			in[init.Meaning.Outputs[i].Name] = v
		}
	}
	b.Output(spec.OutputValue, transform.Inline(b, forward, pick(in, forward)...)[spec.OutputValue])
	meaning, err := b.Build()
	return init, &program.Call{Name: "calibrate", Meaning: meaning}, err
}

// isMaximum reports whether an output of a program of initial values is reduced by the maximum.
func (q *Quantizer) isMaximum(output string) bool {
	return slices.ContainsFunc(q.State(), func(t spec.Tensor) bool {
		return t.Maximum && spec.KeptPrefix+t.Name == output
	})
}
