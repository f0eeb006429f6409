package step

import (
	"maps"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/update"
)

// A device with several replicas computes a part of each micro-batch on each of them:
// as many sequences, so that the mean over replicas is that over the batch. Everything
// that is trained is the same on all, and so is what the update does with gradients
// that were summed across.

// meanLoss takes the mean of losses and the sum of gradients over the replicas.
func meanLoss(losses *graph.Node, grads []*graph.Node) (*graph.Node, []*graph.Node) {
	n := engine.Replicas(losses.Graph())
	if n == 1 {
		return losses, grads
	}
	across := engine.SumAcross(append([]*graph.Node{losses}, grads...)...)
	return graph.MulScalar(across[0], 1/float64(n)), across[1:]
}

// meanLosses is [meanLoss] with the gradients by name.
func meanLosses(losses *graph.Node, grads update.Nodes) (*graph.Node, update.Nodes) {
	names := slices.Sorted(maps.Keys(grads))
	list := make([]*graph.Node, len(names))
	for i, name := range names {
		list[i] = grads[name]
	}
	losses, list = meanLoss(losses, list)
	for i, name := range names {
		grads[name] = list[i]
	}
	return losses, grads
}

// meanAcross takes the means of nodes over the replicas.
func meanAcross(nodes []*graph.Node) []*graph.Node {
	means := engine.SumAcross(nodes...)
	for i, sum := range means {
		if n := engine.Replicas(sum.Graph()); n > 1 {
			means[i] = graph.MulScalar(sum, 1/float64(n))
		}
	}
	return means
}

// replicaSpec is the input for the number of a replica.
var replicaSpec = engine.Spec{Name: replicaName, Shape: shapes.Make(dtypes.Int32, 1), Sharded: true}

// gatherReplicas puts the values of all replicas one after the other, given the number of
// this one.
func gatherReplicas(x, replica *graph.Node) *graph.Node {
	n := engine.Replicas(x.Graph())
	if n == 1 {
		return x
	}
	all := append([]int{n}, x.Shape().Dimensions...)
	own := graph.Equal(graph.Iota(x.Graph(), shapes.Make(dtypes.Int32, all...), 0), graph.BroadcastToDims(graph.Reshape(replica), all...))
	placed := graph.BroadcastToDims(graph.Reshape(x, append([]int{1}, x.Shape().Dimensions...)...), all...)
	return engine.SumAcross(graph.Where(own, placed, graph.ZerosLike(placed)))[0]
}
