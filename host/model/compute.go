package model

import (
	"slices"

	"github.com/cage-qat/cage/host/compute/update"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/graphs"
	"github.com/cage-qat/cage/host/model/kernels"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/sdk/program"
)

// A ProgramOptions says what a program of a model computes.
type ProgramOptions struct {
	network.Shape
	network.Quantizers
}

// gradient returns a program with the gradients with respect to those of the named inputs that it
// has.
func gradient(forward *program.Program, err error, wrt []string) (*program.Program, error) {
	if err != nil || len(wrt) == 0 {
		return forward, err
	}
	noInput := func(name string) bool { return forward.Input(name) < 0 }
	return network.Gradient(forward, slices.DeleteFunc(slices.Clone(wrt), noInput)...)
}

// Program implements [Model].
func (m *transformer) Program(of ProgramOptions, wrt ...string) (*program.Program, error) {
	p, err := network.New(m.Settings, of.Shape, of.Quantizers)
	return gradient(p, err, wrt)
}

// Calls implements [Model].
func (m *transformer) Calls(shape network.Shape) update.Calls {
	table := kernels.For(m.LossTokens)
	if shape.Task == network.Decode && shape.Context == 1 {
		table = kernels.ForFew()
	}
	return update.Calls{Rounded: true, Rules: graphs.For(m.LossTokens), Kernels: table,
		Attention: network.Attention, Sums: kernels.Sums, Recompute: map[architecture.Recompute]string{
			architecture.RecomputeBlocks:    network.Block,
			architecture.RecomputeAttention: network.SelfAttention}[m.Recompute]}
}
