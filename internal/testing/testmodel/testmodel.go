// Package testmodel computes models in the graphs of tests.
package testmodel

import (
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/sdk/program"
)

// Pass returns the pass that reads a batch, of the shape of [model.Model.BatchDims], with params,
// the values of the parameters in order.
func Pass(m model.Model, params []*graph.Node, batch *graph.Node) model.Pass {
	dims := batch.Shape().Dimensions
	of := model.Pass{Inputs: map[string]*graph.Node{network.Tokens: batch}}
	of.Batch, of.Context, of.Documents = dims[0], dims[len(dims)-1]-1, len(dims) > 2
	for i, p := range m.Params() {
		of.Inputs[p.Name] = params[i]
	}
	return of
}

// Logits returns the logits of a batch, [batch·context, vocabulary].
func Logits(m model.Model, params []*graph.Node, batch *graph.Node) *graph.Node {
	of := Pass(m, params, batch)
	of.Head.Logits = true
	out, _ := m.Compute(of, nil)
	return out[network.Logits]
}

// Activations returns the activations at the sites of a model, which reads a batch of sequences, in
// the order of the sites. Those that zero selects are zero.
func Activations(m model.Model, params []*graph.Node, batch *graph.Node,
	zero func(site string) bool) (list []*graph.Node) {
	of := Pass(m, params, batch)
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
	out, _ := m.Compute(of, nil)
	for _, s := range sites {
		list = append(list, out[s.Name])
	}
	return list
}
