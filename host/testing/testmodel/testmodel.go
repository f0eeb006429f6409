// Package testmodel computes models in the programs of tests.
package testmodel

import (
	"maps"
	"slices"

	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// A Pass is a program of a model, and its inputs by name.
type Pass struct {
	model.ProgramOptions
	Inputs map[string]program.Value
}

// Of returns the pass that reads a batch, of the shape of [model.Model.BatchDims], with params, the
// values of the parameters in order.
func Of(m model.Model, params []program.Value, batch program.Value) Pass {
	dims := batch.Shape()
	of := Pass{Inputs: map[string]program.Value{network.Tokens: batch}}
	of.Batch, of.Context, of.Documents = dims[0], dims[len(dims)-1]-1, len(dims) > 2
	for i, p := range m.Params() {
		of.Inputs[p.Name] = params[i]
	}
	return of
}

// Compute adds the program to that of the inputs, with the gradients with respect to inputs, and
// returns its outputs by name.
func (of Pass) Compute(m model.Model, wrt ...string) map[string]program.Value {
	first := slices.Sorted(maps.Keys(of.Inputs))[0]
	b := of.Inputs[first].Builder()
	written, err := m.Program(of.ProgramOptions, wrt...)
	if err != nil {
		b.Fail(err)
		return nil
	}
	var args []program.Value
	for _, in := range written.Inputs {
		args = append(args, of.Inputs[in.Name])
	}
	return transform.Inline(b, written, args...)
}

// Logits returns the logits of a batch, [batch·context, vocabulary].
func Logits(m model.Model, params []program.Value, batch program.Value) program.Value {
	of := Of(m, params, batch)
	of.Head.Logits = true
	return of.Compute(m)[network.Logits]
}

// Activations returns the activations at the sites of a model, which reads a batch of sequences, in
// the order of the sites. Those that zero selects are zero.
func Activations(m model.Model, params []program.Value, batch program.Value,
	zero func(site string) bool) (list []program.Value) {
	of := Of(m, params, batch)
	of.Calls = map[string]*program.Call{}
	sites := m.ActivationSites(of.Batch, of.Context)
	for _, s := range sites {
		of.Record = append(of.Record, s.Name)
		if !zero(s.Name) {
			continue
		}
		b := program.NewBuilder("zero")
		b.Output("value", b.Input("x", program.FloatType(s.Tokens, s.Width)).Scale(0))
		p, err := b.Build()
		if err != nil {
			panic(err) // the device makes an error of it
		}
		of.Calls[s.Name] = &program.Call{Name: "zero", Meaning: p}
	}
	out := of.Compute(m)
	for _, s := range sites {
		list = append(list, out[s.Name])
	}
	return list
}
