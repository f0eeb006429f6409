package step

import (
	"math"
	"slices"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/update"
)

// accumulateGradients builds the graph of all micro-batches on one replica. It returns their
// losses, in the order in which the host reads them, and the tensors of [Plan.summed]. in has the
// inputs of the forward pass, and the tokens and keys of all micro-batches.
func (p *Plan) accumulateGradients(in update.Nodes) update.Nodes {
	kind := gradientKind{full: p.FullPrecision, local: true}
	reads, own := p.gradientSpecs(kind.full), p.batchSpecs(kind.full)
	if p.Accumulate == 1 {
		one := update.Nodes{}
		for _, spec := range own {
			one[spec.Name] = graph.Reshape(in[spec.Name], spec.Shape.Dimensions...)
		}
		for _, spec := range reads {
			one[spec.Name] = in[spec.Name]
		}
		return p.gradientStage(kind).Lower(one)
	}
	g := in.Graph()
	kind.sum = true
	list, stage := p.summed(kind.full), p.gradientStage(kind)
	state := []*graph.Node{graph.BroadcastToDims(Tensor{}.identity(g), p.Accumulate, p.lossCount())}
	for _, t := range list {
		identity := graph.BroadcastToDims(t.identity(g), t.Dims...)
		state = append(state, part(identity, p.divided(t.Name, t.Dims)))
	}
	var fixed []*graph.Node
	for _, spec := range slices.Concat(own, reads) {
		fixed = append(fixed, part(in[spec.Name], engine.HasRows(in[spec.Name])))
	}
	body := func(i *graph.Node, fixed, state []*graph.Node) []*graph.Node {
		one := update.Nodes{}
		for j, spec := range own {
			row := graph.Gather(fixed[j], graph.Reshape(i, 1))
			one[spec.Name] = graph.Reshape(row, spec.Shape.Dimensions...)
		}
		for j, spec := range reads {
			one[spec.Name] = whole(fixed[len(own)+j], engine.HasRows(in[spec.Name]))
		}
		for j, t := range list {
			one[t.Name] = whole(state[1+j], p.divided(t.Name, t.Dims))
		}
		out := stage.Lower(one)
		row := graph.InsertAxes(out[lossName], 0)
		losses := graph.DynamicUpdateSlice(state[0], row, []*graph.Node{i, graph.ZerosLike(i)})
		next := []*graph.Node{losses}
		for _, t := range list {
			next = append(next, part(out[t.Name], p.divided(t.Name, t.Dims)))
		}
		return next
	}
	state = engine.Loop(g, p.Accumulate, fixed, state, body)
	sums := update.Nodes{lossName: graph.Reshape(state[0], -1)}
	for j, t := range list {
		sums[t.Name] = whole(state[1+j], p.divided(t.Name, t.Dims))
	}
	return sums
}

func part(x *graph.Node, divided bool) *graph.Node {
	if divided {
		return engine.Rows(x)
	}
	return x
}

func whole(x *graph.Node, divided bool) *graph.Node {
	if divided {
		return engine.Gather(x)
	}
	return x
}

// identity returns the identity element: −∞ for a maximum, −0 for a sum (−0 + 0 would be 0).
func (t Tensor) identity(g *graph.Graph) *graph.Node {
	if t.Maximum {
		return graph.Const(g, float32(math.Inf(-1)))
	}
	return graph.Const(g, float32(math.Copysign(0, -1)))
}
