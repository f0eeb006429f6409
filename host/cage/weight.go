package cage

import (
	"errors"
	"fmt"

	"github.com/cage-qat/cage/internal/lists"
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

// scale returns the scale of each element, given the outputs of the quantizer. It unpacks, at every
// element, the code of the level farthest from 0, and divides the result by that level.
func (w *Weight) scale(b *program.Builder, l Levels, out map[string]program.Value) program.Value {
	codes, top := out[spec.OutputCodes], len(l.Numbers)-1
	if l.Numbers[top] <= -l.Numbers[0] {
		top = 0
	}
	farthest := b.Zeros(codes.Type().Shape...).Shift(float64(l.Codes[top])).Convert(codes.Type().DType)
	args := lists.Map(w.Unpack.Inputs, func(in program.Input) program.Value {
		if in.Name == spec.OutputCodes {
			return farthest
		}
		return out[spec.OutputScale]
	})
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
