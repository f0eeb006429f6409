package cage

import (
	"errors"
	"fmt"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
	"github.com/cage-qat/cage/sdk/spec"
)

// Weight describes a weight's quantizer to a method.
type Weight struct {
	Quantizer spec.Quantizer
	// Rotation is the block size of the rotation that ends the quantizer's program, after rounding;
	// 0 or 1 if there is none.
	Rotation int
	// Unpack maps codes and scales to values before that rotation; nil if the quantizer has no
	// Unpack program.
	Unpack *program.Program
}

// rotate applies the final rotation, which is its own inverse.
func (w *Weight) rotate(x program.Value) program.Value {
	if w.Rotation > 1 {
		return x.Hadamard(w.Rotation)
	}
	return x
}

// scale returns the scale of each element, given the outputs of the quantizer. It unpacks, at every
// element, the code of the level farthest from 0, and divides the result by that level.
func (w *Weight) scale(b *program.Builder, l Levels, out map[string]program.Value) program.Value {
	codes, top := out[spec.OutputCodes], l.Farthest()
	farthest := b.Zeros(codes.Type().Shape...).Shift(float64(l.Codes[top])).Convert(codes.Type().DType)
	var args []program.Value
	for _, in := range w.Unpack.Inputs {
		if in.Name == spec.OutputCodes {
			args = append(args, farthest)
		} else {
			args = append(args, out[spec.OutputScale])
		}
	}
	values := transform.Inline(b, w.Unpack, args...)[spec.OutputValue]
	return values.Scale(1 / l.Numbers[top])
}

const maxLevels = 64

// levels returns the levels of the grid that the quantizer declares.
func (w *Weight) levels() (l Levels, err error) {
	numbers := Numbers(w.Quantizer.Grid)
	if numbers == nil || w.Unpack == nil {
		return l, errors.New("its quantizer does not declare the values of its codes")
	}
	l = NewLevels(numbers)
	if len(l.Numbers) < 2 || !l.Uniform() && len(l.Numbers) > maxLevels {
		return l, fmt.Errorf("its grid has %d levels: want 2 to %d, or a uniform grid",
			len(l.Numbers), maxLevels)
	}
	return l, nil
}
