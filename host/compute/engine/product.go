package engine

import (
	"fmt"
	"slices"
	"sync"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/matmul"
)

// ProductTier returns the kernels for products on this processor. If it returns an error, the CPU
// device cannot be opened.
var ProductTier = sync.OnceValues(matmul.Best)

// Fuses reports whether the device, which may be nil, computes models by plans, programs over rows
// by package cpu, and products by package matmul. The CPU device does, unless a test asks for graph
// operations.
func (d *Device) Fuses() bool {
	return d != nil && d.kind == device.CPU &&
		(d.options.Kernels == device.AutoKernels || d.options.Kernels == device.FusedKernels)
}

// FusesFloat32 reports whether [Device.Fuses] holds and the precision is float32.
func (d *Device) FusesFloat32() bool { return d.Fuses() && d.options.Precision == device.Float32 }

// OwnProducts reports whether package matmul computes float products of the graph. For float32
// products on processors without its vector kernels, GoMLX is used instead.
func OwnProducts(g *graph.Graph) bool {
	return OnCPU(g) && (InBFloat16(g) || DeviceOf(g).ownFloat32())
}

func (d *Device) ownFloat32() bool {
	tier, err := ProductTier()
	return err == nil && d.FusesFloat32() && !tier.IsPortable()
}

// WarnOfProducts warns if bfloat16 products are no faster than float32 products.
func (d *Device) WarnOfProducts() {
	if d.kind != device.CPU || d.options.Precision != device.BFloat16 {
		return
	}
	if tier, err := ProductTier(); err == nil && !tier.HasBFloat16() {
		d.Warn("this processor cannot multiply bfloat16: products round their operands and take as "+
			"long as in float32", "kernels", tier.Name())
	}
}

// MultipliesBFloat16 reports whether this processor has a dot-product instruction for bfloat16.
func MultipliesBFloat16() bool {
	tier, err := ProductTier()
	return err == nil && tier.HasBFloat16()
}

// native returns the product, computed by package matmul.
func (p product) native(arithmetic matmul.Arithmetic) *graph.Node {
	left := layoutOf(p.a.Shape(), p.aBatch, p.aContracted)
	right := layoutOf(p.b.Shape(), p.bBatch, p.bContracted)
	tier, err := ProductTier()
	if err != nil {
		panic(err)
	}
	compiled, err := matmul.New(tier, arithmetic, left, right)
	if err != nil {
		panic(fmt.Errorf("product of %s and %s: %w", p.a.Shape(), p.b.Shape(), err))
	}
	var dims []int
	for _, axis := range slices.Concat(left.Batch, left.Cross, right.Cross) {
		dims = append(dims, axis.Size)
	}
	var scales matmul.Scales
	if arithmetic == matmul.Int8 { // which needs some
		scales.Rows = slices.Repeat([]float32{1}, dims[0])
	}
	run := func(in, out []Tensor, parallel Parallel) error {
		results := matmul.Results{Float32: out[0].Flat.([]float32)}
		return compiled.Run(results, Elements(in[0]), Elements(in[1]), scales, parallel)
	}
	output := shapes.Make(dtypes.Float32, dims...)
	return Native{Name: "product", Outputs: []shapes.Shape{output}, Run: run}.Call(
		ShortOperand(p.a), ShortOperand(p.b))[0]
}

// Arithmetic returns the arithmetic of package matmul for the precision of the graph's device.
func Arithmetic(g *graph.Graph) matmul.Arithmetic {
	if InBFloat16(g) {
		return matmul.BFloat16
	}
	return matmul.Float32
}

// ShortOperand returns the bfloat16 node that x was converted from, or else x. A native reads
// bfloat16 operands directly.
func ShortOperand(x *graph.Node) *graph.Node {
	if from := x; from.Type() == graph.NodeTypeConvertDType && from.DType() == dtypes.Float32 {
		if short := from.Inputs()[0]; short.DType() == dtypes.BFloat16 {
			return short
		}
	}
	return x
}

func layoutOf(shape shapes.Shape, batch, contracted []int) (l matmul.Layout) {
	strides := shape.Strides()
	for i, size := range shape.Dimensions {
		if !slices.Contains(batch, i) && !slices.Contains(contracted, i) {
			l.Cross = append(l.Cross, matmul.Axis{Size: size, Stride: strides[i]})
		}
	}
	pick := func(list []int) (axes []matmul.Axis) {
		for _, i := range list {
			axes = append(axes, matmul.Axis{Size: shape.Dimensions[i], Stride: strides[i]})
		}
		return axes
	}
	l.Batch, l.Contracted = pick(batch), pick(contracted)
	return l
}

// Elements returns a tensor's elements as an operand of package matmul.
func Elements(t Tensor) matmul.Elements {
	switch flat := t.Flat.(type) {
	case []float32:
		return matmul.Elements{Float32: flat}
	case []uint16:
		return matmul.Elements{BFloat16: flat}
	case []int8:
		return matmul.Elements{Int8: flat}
	}
	panic(fmt.Errorf("unsupported type %s for an operand of a product", t.Shape.DType))
}
