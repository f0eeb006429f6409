package sdk

import (
	"reflect"
	"slices"
	"strings"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
	"github.com/cage-qat/cage/sdk/spec"
)

func inputState(b *program.Builder, prefix string, list []spec.Tensor) State {
	state := State{}
	for _, s := range list {
		state[s.Name] = b.Input(prefix+s.Name, program.FloatType(s.Shape...))
	}
	return state
}

// outputState makes each value an output and lists them in the order of their names.
func outputState(b *program.Builder, prefix string, state State) (list []spec.Tensor) {
	for name := range state {
		list = append(list, spec.Tensor{Name: name, Shape: state[name].Shape()})
	}
	slices.SortFunc(list, func(x, y spec.Tensor) int { return strings.Compare(x.Name, y.Name) })
	for _, s := range list {
		b.Output(prefix+s.Name, state[s.Name])
	}
	return list
}

// finishUsed is finish without those of the optional inputs that the program does not use: it is
// then the same program, with the same hash, as if they did not exist.
func finishUsed(b *program.Builder, which string, method reflect.Method, optional []program.Input) (*program.Program, error) {
	p, err := finish(b, which, method)
	if err != nil {
		return nil, err
	}
	return onlyOutputs(p, p.Name, p.Outputs, optional)
}

// onlyOutputs is the part of p with these of its outputs, and without those of the optional inputs
// that none of them needs.
func onlyOutputs(p *program.Program, name string, outputs []program.Output, optional []program.Input) (*program.Program, error) {
	needed := transform.Needs(p, outputs)
	var keep []program.Output
	for i, in := range transform.Arguments(p) {
		if needed[i] || !slices.ContainsFunc(optional, func(o program.Input) bool { return o.Name == in.Name }) {
			keep = append(keep, in)
		}
	}
	return transform.Extract(p, name, keep, outputs)
}
