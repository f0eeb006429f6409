package fakequant

import (
	"errors"
	"fmt"

	"github.com/cage-qat/cage/host/compute/calls"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// Packed describes how a matrix whose numbers are on the grid of a quantizer is stored: as the
// codes and scales of the quantizer, which computes the numbers from them.
type Packed struct {
	// Codes has several codes in a byte: byte i of a row has those of the columns i, i + n, i + 2·n
	// and so on, where n is the number of bytes in a row.
	Codes, Scale shapes.Shape
	// ID is the same for matrices that are packed alike.
	ID string

	quantize, unpack   *program.Program
	bits               int
	least, step, codes float64 // the least code, the distance of codes, and their number
}

// NewPacked returns how a quantizer packs a matrix, with scales of the given type; "" means f32.
func NewPacked(q spec.Quantizer, scale microscaling.ScaleType) (*Packed, error) {
	q = q.ForEvaluation()
	numbers := q.Grid.Codes()
	switch {
	case q.Unpack == nil || len(numbers) < 2:
		return nil, errors.New("its quantizer returns no codes from which the numbers follow")
	case len(q.Program.Inputs) > 1:
		return nil, errors.New("its quantizer trains its scales, which would then be others")
	}
	ports, err := spec.PackedPorts(q.Program)
	if err != nil {
		return nil, err
	}
	p := &Packed{quantize: Only(q.Program, spec.OutputCodes, spec.OutputScale), unpack: q.Unpack,
		bits: 1, least: float64(numbers[0]), step: float64(numbers[1] - numbers[0]),
		codes: float64(len(numbers))}
	rows, columns := calls.RowsOf(q.Program), ports[0].Type.Shape[len(ports[0].Type.Shape)-1]
	for 1<<p.bits < len(numbers) || p.bits < 8 && columns*p.bits%8 != 0 {
		p.bits *= 2
	}
	if p.bits > 8 {
		return nil, fmt.Errorf("its quantizer has %d codes, want at most 256", len(numbers))
	}
	p.Codes = shapes.Make(shapes.Uint8, rows, columns*p.bits/8)
	dtype := shapes.Float32
	switch scale {
	case microscaling.ScaleF16:
		dtype = shapes.Float16
	case microscaling.ScaleBF16:
		dtype = shapes.BFloat16
	}
	p.Scale = shapes.Make(dtype, ports[1].Type.Shape...)
	p.ID = fmt.Sprint(p.Scale, p.least, p.step, p.codes)
	for _, part := range []program.Program{*p.quantize, *p.unpack} {
		part.Name = ""
		p.ID += part.Hash()
	}
	return p, nil
}

// Pack returns x as codes, numbers from 0 to 255, and scales, from which Unpack returns x if its
// numbers are on the grid.
func (p *Packed) Pack(x program.Value) (codes, scale program.Value) {
	out, b := ByRows(p.quantize, x), x.Builder()
	number := out[spec.OutputCodes].Convert(program.Float).Shift(-p.least).Div(b.Const(p.step))
	number = number.Floor().Clip(0, p.codes-1) // a group of zeros may have the code 0 on any grid
	n := p.Codes.Dim(1)
	for i := range 8 / p.bits {
		part := number.At(1, i*n, (i+1)*n)
		if i > 0 {
			part = codes.Add(part.Scale(float64(int(1) << (i * p.bits))))
		}
		codes = part
	}
	return codes, out[spec.OutputScale]
}

// Unpack returns the matrix.
func (p *Packed) Unpack(codes, scale program.Value) program.Value {
	b := codes.Builder()
	codes = codes.Convert(program.Int)
	parts := lists.Make(8/p.bits, func(i int) program.Value {
		return codes.Shr(b.ConstInt(int32(i * p.bits))).And(b.ConstInt(1<<p.bits - 1))
	})
	numbers := parts[0]
	if len(parts) > 1 {
		numbers = numbers.Concatenate(1, parts[1:]...)
	}
	numbers = numbers.Convert(program.Float).Scale(p.step).Shift(p.least)
	return ByRows(p.unpack, numbers.Convert(p.unpack.Inputs[0].Type.DType), scale)[spec.OutputValue]
}

// Bytes returns the size of a packed matrix.
func (p *Packed) Bytes() int64 { return p.Codes.ByteSize() + p.Scale.ByteSize() }
