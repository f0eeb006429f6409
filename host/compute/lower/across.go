package lower

import (
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
)

// Calls that communicate between replicas. Their meaning is that of a single replica: the tensor
// itself.
const (
	sumAcross      = "sum-across-replicas"
	maximumAcross  = "maximum-across-replicas"
	scatteredSum   = "scattered-sum-across-replicas"
	gatheredInRows = "gathered-rows"
)

// ownRule returns the rule for a call of this package, which is called name; nil if there is none.
func ownRule(name string) func(c Call) []*graph.Node {
	one := func(f func(x *graph.Node) *graph.Node) func(c Call) []*graph.Node {
		return func(c Call) []*graph.Node { return []*graph.Node{f(c.Args[0])} }
	}
	switch name {
	case inRows:
		return func(c Call) []*graph.Node {
			p := c.Meaning
			out := lowerRows(c.Args[0].Graph(), p, c.Setting.(int), lists.Map(c.Args, asFloat),
				codesInMemory)
			return lists.Map(p.Outputs, func(o program.Output) *graph.Node { return out[o.Name] })
		}
	case sumAcross:
		return one(func(x *graph.Node) *graph.Node { return graph.AllReduce(x, graph.Sum) })
	case maximumAcross:
		return one(func(x *graph.Node) *graph.Node { return graph.AllReduce(x, graph.Maximum) })
	case scatteredSum:
		return one(engine.ScatterSum)
	case gatheredInRows:
		return func(c Call) []*graph.Node {
			x := c.Args[0]
			if !engine.HasRows(x) {
				return []*graph.Node{x}
			}
			rounded := c.Setting.(bool) && engine.InBFloat16(x.Graph())
			return []*graph.Node{engine.GatherOperand(engine.Rows(x), rounded)}
		}
	}
	return nil
}

func identity(name string, setting any, x program.Value) program.Value {
	b := program.NewSimplifier(name)
	b.Output("y", b.Input("x", x.Type()))
	p, err := b.Build()
	if err != nil {
		x.Builder().Fail(err)
		return x
	}
	return x.Builder().Call(&program.Call{Name: name, Setting: setting, Meaning: p}, x)[0]
}

// SumAcross returns the sum of a tensor over all replicas, and MaximumAcross the maximum.
func SumAcross(x program.Value) program.Value { return identity(sumAcross, nil, x) }

// MaximumAcross returns the maximum of a tensor over all replicas.
func MaximumAcross(x program.Value) program.Value { return identity(maximumAcross, nil, x) }

// MeanAcross returns the mean of a tensor over a number of replicas, which is that of the device.
func MeanAcross(x program.Value, replicas int) program.Value {
	return SumAcross(x).Scale(1 / float64(replicas))
}

// ScatteredSum returns the sum of a tensor over all replicas, of which each computes its rows.
func ScatteredSum(x program.Value) program.Value { return identity(scatteredSum, nil, x) }

// Gathered returns a tensor that is sharded by rows as the forward pass and, once more, the
// backward pass read it, so that it is not kept in between ([engine.GatherOperand]). If rounded is
// set, it is transferred in the device's precision.
func Gathered(x program.Value, rounded bool) program.Value {
	return identity(gatheredInRows, rounded, x)
}
