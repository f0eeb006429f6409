package step

import (
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// SetExecutor replaces what runs refresh programs.
func (k *Kernels) SetExecutor(f func(*program.Program, map[string]reference.Tensor) (map[string]reference.Tensor, error)) {
	k.execute = f
}

// Install puts the results of refreshes in place that are due before update t.
func (k *Kernels) Install(s *State, t int) error { return k.install(s, t, &Result{}) }

// SplitRefresh returns the two parts of a refresh program.
func SplitRefresh(o sdk.OptimizerProgram) (background, apply *program.Program, err error) {
	s, err := splitRefresh(o)
	if err != nil {
		return nil, nil, err
	}
	return s.background, s.apply, nil
}

// Products counts the products in the graph of the update without correction.
func (k *Kernels) Products() (int, error) {
	count := 0
	specs, build := k.plan.updateGraph(k.plan.Rules)
	exec, err := k.dev.Compile("count", specs, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
		out := build(g, in)
		for _, n := range g.Nodes() {
			if n.Type() == graph.NodeTypeDotGeneral {
				count++
			}
		}
		return out
	})
	if err == nil {
		exec.Close()
	}
	return count, err
}
