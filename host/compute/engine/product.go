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

// Products of the CPU device in bfloat16 and of integers are those of package matmul, as natives, and those in float32 where
// [device.FusedKernels] are asked for.

// ProductTier returns the kernels for products on this processor.
var ProductTier = sync.OnceValues(matmul.Best)

// nativeTier is ProductTier for products in graphs, which have to be natives.
func nativeTier() (*matmul.Tier, error) {
	if err := nativesLack(); err != nil {
		return nil, err
	}
	return ProductTier()
}

// hasProducts reports whether the graph may use products of package matmul.
func hasProducts(g *graph.Graph) bool {
	_, err := nativeTier()
	return err == nil && OnCPU(g)
}

// ownFloats reports whether products of floats in the graph are those of package matmul.
func ownFloats(g *graph.Graph) bool {
	return hasProducts(g) && (InBFloat16(g) || DeviceOf(g).FusesFloat32())
}

// FusesFloat32 reports whether a device, which may be nil, computes as [device.FusesFloat32] says: its settings ask for it, and the
// build has natives. That is faster, with other bits.
func (d *Device) FusesFloat32() bool {
	if d == nil || !d.asksForFusedFloat32() {
		return false
	}
	_, err := nativeTier()
	return err == nil
}

func (d *Device) asksForFusedFloat32() bool {
	return device.FusesFloat32(d.kind, d.options.Precision, d.options.Kernels)
}

// WarnOfProducts warns if products take longer than the device's options let expect.
func (d *Device) WarnOfProducts() {
	inBFloat16, integer := d.options.Precision == device.BFloat16, d.options.Products == device.IntegerProducts
	if d.kind != device.CPU || !inBFloat16 && !integer && !d.asksForFusedFloat32() {
		return
	}
	tier, err := nativeTier()
	switch {
	case err != nil && d.asksForFusedFloat32():
		d.Warn("device.kernels = \"fused\" has no effect: float32 is computed by operations of the library, which takes more time", "reason", err)
	case err != nil:
		d.Warn("products in bfloat16 and of integers are computed by operations of the library, which takes more time than float32", "reason", err)
	case inBFloat16 && !tier.HasBFloat16():
		d.Warn("on this processor products in bfloat16 are multiplied in float32, after their operands are rounded: that takes as long as float32 with device.kernels = \"fused\" would", "kernels", tier.Name())
	}
}

// TransposesOperands reports whether products of the graph's device read operands in one order of axes only, so that others
// are transposed in memory first. Graphs are then better built so that few are. It is so for the library's float32 on the CPU.
func TransposesOperands(g *graph.Graph) bool {
	return OnCPU(g) && !ownFloats(g)
}

// nativeDot is [DotGeneral] by package matmul, in the device's precision for operands of floats and exact for those of int8. rows
// and columns scale the results of each row of a and each row of b, see [matmul.Scales], and sum is what they are added to; nil for none.
// If rounded is set, the result is rounded to the precision, and stored so: natives read it as it is ([ShortOperand]).
func nativeDot(a *graph.Node, aContracted, aBatch []int, b *graph.Node, bContracted, bBatch []int, rows, columns, sum *graph.Node, rounded bool) *graph.Node {
	arithmetic := Arithmetic(a.Graph())
	if a.DType() == dtypes.Int8 {
		arithmetic = matmul.Int8
	}
	left, right := layoutOf(a.Shape(), aBatch, aContracted), layoutOf(b.Shape(), bBatch, bContracted)
	tier, err := ProductTier()
	if err != nil {
		panic(err)
	}
	short := rounded && InBFloat16(a.Graph())
	p, err := matmul.New(tier, arithmetic, left, right)
	if err != nil {
		panic(fmt.Errorf("product of %s and %s: %w", a.Shape(), b.Shape(), err))
	}
	var dims []int
	for _, list := range [][]matmul.Axis{left.Batch, left.Cross, right.Cross} {
		for _, axis := range list {
			dims = append(dims, axis.Size)
		}
	}
	inputs := []*graph.Node{ShortOperand(a), ShortOperand(b)}
	if rows != nil {
		inputs = append(inputs, rows)
	}
	if columns != nil {
		inputs = append(inputs, columns)
	}
	if sum != nil {
		inputs = append(inputs, sum)
	}
	scaleRows, scaleColumns, adds := rows != nil, columns != nil, sum != nil
	product := Native{Name: "product", Outputs: []shapes.Shape{shapes.Make(dtypes.Float32, dims...)}}
	if short {
		product.Outputs[0].DType = dtypes.BFloat16
	}
	product.Run = func(in, out []Tensor, parallel Parallel) error {
		left, right := Elements(in[0]), Elements(in[1])
		var s matmul.Scales
		in = in[2:]
		if scaleRows {
			s.Rows, in = in[0].Flat.([]float32), in[1:]
		}
		if scaleColumns {
			s.Columns, in = in[0].Flat.([]float32), in[1:]
		}
		var results matmul.Results
		if adds {
			results.Addend = in[0].Flat.([]float32)
		}
		if short {
			results.BFloat16 = out[0].Flat.([]uint16)
		} else {
			results.Float32 = out[0].Flat.([]float32)
		}
		return p.Run(results, left, right, s, parallel)
	}
	result := product.Call(inputs...)[0]
	if short {
		result = graph.ConvertDType(result, dtypes.Float32)
	}
	return result
}

// Arithmetic is what package matmul computes products of floats with, in the precision of the graph's device.
func Arithmetic(g *graph.Graph) matmul.Arithmetic {
	if InBFloat16(g) {
		return matmul.BFloat16
	}
	return matmul.Float32
}

// ShortOperand looks through a conversion from bfloat16, also behind identities, which stand for gradients: a native reads such an
// operand as it is stored.
func ShortOperand(x *graph.Node) *graph.Node {
	from := x
	for from.Type() == graph.NodeTypeIdentity {
		from = from.Inputs()[0]
	}
	if from.Type() == graph.NodeTypeConvertDType && from.DType() == dtypes.Float32 && from.Inputs()[0].DType() == dtypes.BFloat16 {
		return from.Inputs()[0]
	}
	return x
}

// OperandType is the type to which products of floats in the graph round their operands.
func OperandType(g *graph.Graph) dtypes.DType {
	if InBFloat16(g) {
		return dtypes.BFloat16
	}
	return dtypes.Float32
}

// layoutOf says where the elements of a tensor of the given shape lie for a product.
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

// Elements are the numbers of an operand as package matmul takes them.
func Elements(t Tensor) matmul.Elements {
	switch flat := t.Flat.(type) {
	case []float32:
		return matmul.Elements{Float32: flat}
	case []uint16:
		return matmul.Elements{BFloat16: flat}
	case []int8:
		return matmul.Elements{Int8: flat}
	}
	panic(fmt.Errorf("an operand of a product is of type %s", t.Shape.DType))
}

// AllElements are [Elements] of each tensor.
func AllElements(list []Tensor) (all []matmul.Elements) {
	for _, t := range list {
		all = append(all, Elements(t))
	}
	return all
}
