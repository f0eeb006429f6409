package step

import (
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/engine"
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

// Tiled counts the rules of the update without correction that run in tiles, and all.
func (k *Kernels) Tiled() (tiled, all int, err error) {
	return k.TiledAs("off", false)
}

// TiledAs counts those of another form, with or without statistics.
func (k *Kernels) TiledAs(form string, statistics bool) (tiled, all int, err error) {
	u, err := k.update(updateKey{form: cage.Form(form), statistics: statistics})
	if err != nil {
		return 0, 0, err
	}
	if u.tiled != nil {
		tiled = len(u.tiled.rules)
	}
	return tiled, len(u.rules), nil
}

// ReadyUpdate quantizes the weights, uploads gradients, and returns the update of one
// step, which may run once.
func (k *Kernels) ReadyUpdate(s *State, grads [][]float32, set Settings) (func() error, error) {
	q, err := k.runQuantize(s)
	if err != nil {
		return nil, err
	}
	var buffers []*engine.Buffer
	for i, p := range s.Params {
		b, err := engine.Upload(k.dev, grads[i], p.Shape().Dimensions...)
		if err != nil {
			return nil, err
		}
		buffers = append(buffers, b)
	}
	return func() error {
		defer q.close()
		return k.runUpdate(s, q, buffers, set, false, &Result{GradNorm: 1})
	}, nil
}
