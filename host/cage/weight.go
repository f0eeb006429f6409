package cage

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cage-qat/cage/internal/linalg"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/program/transform"
	"github.com/cage-qat/cage/sdk/spec"
)

// Weight describes the quantizer of a weight for a method.
type Weight struct {
	Quantizer spec.Quantizer
	// Rotation is the block size of the rotation that ends the quantizer's program, after rounding;
	// 0 or 1 if there is none.
	Rotation int
	// Unpack maps codes and scales to values before that rotation; nil for a quantizer that does
	// not pack.
	Unpack *program.Program
}

// rotate applies the final rotation, which is its own inverse.
func (w *Weight) rotate(x program.Value) program.Value {
	if w.Rotation > 1 {
		return x.Hadamard(w.Rotation)
	}
	return x
}

// scale returns the scale of each element, given the outputs of the quantizer: it unpacks the level
// farthest from 0 at every element.
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

// levels infers the levels of the quantizer from the outputs of its programs for a [ProbeMatrix].
func (w *Weight) levels() (l Levels, err error) {
	q := w.Quantizer.ForEvaluation()
	if w.Unpack == nil {
		return l, errors.New("its quantizer cannot say what numbers its codes stand for (it does not implement Packer)")
	}
	shape := q.Program.Inputs[0].Type.Shape
	columns, size := shape[len(shape)-1], int(program.FloatType(shape...).Size())
	rows := size / columns // matrices of the weight's size that have all rows of the probe
	rows *= (ProbeRows + rows - 1) / rows
	probe := ProbeMatrix(rows, columns, 1)
	if err := linalg.Rotate(probe, columns, max(1, w.Rotation)); err != nil {
		return l, err
	}
	var codes, scale reference.Tensor
	var seen, all []int32
	for part := range slices.Chunk(probe, size) {
		out, err := reference.Run(q.Program, map[string]reference.Tensor{spec.InputX: reference.Floats(part, shape...)})
		if err != nil {
			return l, err
		}
		codes, scale = out[spec.OutputCodes], out[spec.OutputScale]
		seen = make([]int32, size)
		for i, c := range codes.Float64s() {
			seen[i] = int32(c)
		}
		all = append(all, seen...)
	}
	alphabet, err := Alphabet(all)
	if err != nil {
		return l, err
	}
	unpack := func(at func(i int) int32, scale reference.Tensor) ([]float64, error) {
		out, err := reference.Run(w.Unpack, map[string]reference.Tensor{spec.OutputCodes: filled(codes.Type, at), spec.OutputScale: scale})
		return out[spec.OutputValue].Floats, err
	}
	numbers := map[int32]float32{}
	for part := range slices.Chunk(alphabet, len(seen)) {
		values, err := unpack(func(i int) int32 { return part[i%len(part)] }, filled(scale.Type, func(int) int32 { return 1 }))
		if err != nil {
			return l, err
		}
		for i, c := range part {
			numbers[c] = float32(values[i])
		}
	}
	l = NewLevels(numbers)
	if len(l.Numbers) < 2 || !l.Uniform() && len(l.Numbers) > maxLevels {
		return l, fmt.Errorf("its grid has %d levels: want 2 to %d, or a uniform grid", len(l.Numbers), maxLevels)
	}
	// Verify that the values of codes are their numbers times the scale.
	top := l.Codes[l.Farthest()]
	farthest, err := unpack(func(int) int32 { return top }, scale)
	if err != nil {
		return l, err
	}
	values, err := unpack(func(i int) int32 { return seen[i] }, scale)
	if err != nil {
		return l, err
	}
	for i, v := range values {
		if want := farthest[i] * float64(numbers[seen[i]]) / float64(numbers[top]); math.Abs(v-want) > 1e-6*math.Abs(want) {
			return l, errors.New("its values are not numbers of its codes times its scales")
		}
	}
	return l, nil
}

func filled(t program.Type, at func(i int) int32) reference.Tensor {
	out := reference.Tensor{Type: t}
	for i := range int(t.Size()) {
		if t.DType == program.Float {
			out.Floats = append(out.Floats, float64(at(i)))
		} else {
			out.Ints = append(out.Ints, int64(at(i)))
		}
	}
	return out
}
