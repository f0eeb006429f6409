// Package calls has the calls that are not of models: those of quantizers, of programs over rows,
// and those that communicate between replicas. Package lower has rules for them; plans expand them.
package calls

import (
	"github.com/cage-qat/cage/sdk/program"
)

// Quantize is the name of the calls of quantizers of activations, and of operands of products in
// the backward pass. The first result is Q(x), the others are what the adjoint reads.
const Quantize = "quantize"

// ByRows is the name of the calls of programs that kernels compute by rows. Their setting is the
// number of rows. All floats but codes are stored in float32.
const ByRows = "by-rows"

// Names of the calls that communicate between replicas. Their meaning is that of a single replica:
// the tensor itself.
const (
	AllReduceSum     = "sum-across-replicas"
	AllReduceMaximum = "maximum-across-replicas"
	ReduceScatter    = "scattered-sum-across-replicas"
	AllGather        = "gathered-rows" // its setting reports whether values are rounded for it
)

// RowsOf returns the number of rows of the first input of a program.
func RowsOf(p *program.Program) int {
	t := p.Inputs[0].Type
	return int(t.Size()) / t.Shape[len(t.Shape)-1]
}

// Rows adds p, a program over the given number of rows, to the program of args, and returns its
// outputs by name.
func Rows(p *program.Program, rows int, args ...program.Value) map[string]program.Value {
	b := args[0].Builder()
	results := b.Call(&program.Call{Name: ByRows, Setting: rows, Meaning: p}, args...)
	out := map[string]program.Value{}
	for i, o := range p.Outputs {
		out[o.Name] = results[i]
	}
	return out
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

// SumOverReplicas returns the sum of a tensor over all replicas.
func SumOverReplicas(x program.Value) program.Value { return identity(AllReduceSum, nil, x) }

// MaximumOverReplicas returns the maximum of a tensor over all replicas.
func MaximumOverReplicas(x program.Value) program.Value {
	return identity(AllReduceMaximum, nil, x)
}

// MeanOverReplicas returns the mean of a tensor over a number of replicas, which is that of the
// device.
func MeanOverReplicas(x program.Value, replicas int) program.Value {
	return SumOverReplicas(x).Scale(1 / float64(replicas))
}

// ScatterSum returns the sum of a tensor over all replicas, of which each computes its rows.
func ScatterSum(x program.Value) program.Value { return identity(ReduceScatter, nil, x) }

// Gathered returns a tensor that is sharded by rows as the forward pass and, once more, the
// backward pass read it, so that it is not kept in between. If rounded is set, it is transferred in
// the device's precision.
func Gathered(x program.Value, rounded bool) program.Value {
	return identity(AllGather, rounded, x)
}
