package testkernel

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/cage-qat/cage/internal/fpmodel"
)

// loop executes a loop that carries values from pass to pass, or none.
func (m *machine) loop(op *operation) error {
	const names = 4                              // the counter, its bounds and step; then each carried value, and its first
	results, body := types(op.words), op.body[:] // the type of the counter stands behind those of the results
	if len(op.args) != names+2*len(results) {
		return fmt.Errorf("%s: %d results", op.words, len(results))
	}
	var yield *operation
	if len(results) > 0 {
		if len(body) == 0 || body[len(body)-1].name != "scf.yield" || len(body[len(body)-1].args) != len(results) {
			return fmt.Errorf("%s: the body yields no %d values", op.words, len(results))
		}
		yield, body = &body[len(body)-1], body[:len(body)-1]
	}
	var bounds [3]int32
	for i, name := range op.args[1:names] {
		v := m.values[name]
		if v == nil || v.elem != "i32" || v.dims != nil {
			return fmt.Errorf("%s is no known integer", name)
		}
		bounds[i] = v.integers[0]
	}
	carried := make([]*value, len(results))
	carry := func(i int, name, when string) error {
		switch carried[i] = m.values[name]; {
		case carried[i] == nil:
			return fmt.Errorf("%s is not known", name)
		case !carried[i].equal(results[i]):
			return fmt.Errorf("%s is %v, the text says %v", when, carried[i].kind, results[i])
		}
		return nil
	}
	for i := range results {
		if err := carry(i, op.args[names+2*i+1], "the first value"); err != nil {
			return err
		}
	}
	for n := bounds[0]; n < bounds[1]; n += bounds[2] {
		m.values[op.args[0]] = &value{kind: kind{"i32", nil}, integers: []int32{n}}
		for i, v := range carried {
			m.values[op.args[names+2*i]] = v
		}
		if err := m.run(body); err != nil {
			return err
		}
		for i := range results {
			if err := carry(i, yield.args[i], "what a pass yields"); err != nil {
				return err
			}
		}
	}
	for i, v := range carried {
		m.values[fmt.Sprintf("%s#%d", op.result, i)] = v
		if len(carried) == 1 {
			m.values[op.result] = v
		}
	}
	return nil
}

// dotScaled is a product of two matrices of E2M1 numbers, two in a byte along the axis that is summed, with scales of E8M0 for
// each 32 or of E4M3 for each 16, added to one of float32.
func dotScaled(op *operation, args []*value) (*value, error) {
	if len(args) != 5 || !strings.Contains(op.words, "lhs = e2m1 rhs = e2m1") {
		return nil, fmt.Errorf("%s: want two matrices of e2m1, each with scales", op.words)
	}
	x, scaleX, y, scaleY, sum := args[0], args[1], args[2], args[3], args[4]
	size, scale := 32, e8m0
	switch scaleX.elem {
	case "i8":
	case "f8E4M3FN":
		size, scale = 16, e4m3
	default:
		return nil, fmt.Errorf("there are no scales of %s", scaleX.elem)
	}
	for i, a := range args {
		if !a.equal(op.types[i]) || len(a.dims) != 2 || a.elem != []string{"i8", scaleX.elem, "i8", scaleX.elem, "f32"}[i] {
			return nil, fmt.Errorf("operand %d is %v, the text says %v", i, a.kind, op.types[i])
		}
	}
	rows, columns, inner, blocks := x.dims[0], y.dims[1], 2*x.dims[1], scaleX.dims[1]
	if 2*y.dims[0] != inner || size*blocks != inner || !sum.equal(kind{"f32", []int{rows, columns}}) ||
		scaleX.dims[0] != rows || !slices.Equal(scaleY.dims, []int{columns, blocks}) {
		return nil, fmt.Errorf("%v, %v × %v, %v + %v", x.dims, scaleX.dims, y.dims, scaleY.dims, sum.dims)
	}
	left, right := make([]float32, rows*inner), make([]float32, columns*inner)
	for k := range inner {
		for i := range rows {
			left[i*inner+k] = e2m1(x.integers[i*inner/2+k/2], k) * scale(scaleX.integers[i*blocks+k/size])
		}
		for j := range columns {
			right[j*inner+k] = e2m1(y.integers[k/2*columns+j], k) * scale(scaleY.integers[j*blocks+k/size])
		}
	}
	out := &value{kind: sum.kind, floats: make([]float32, rows*columns)}
	for i := range rows {
		for j := range columns {
			s := float64(sum.floats[i*columns+j])
			for k := range inner {
				s += float64(left[i*inner+k]) * float64(right[j*inner+k])
			}
			out.floats[i*columns+j] = float32(s)
		}
	}
	return out, nil
}

// e2m1 is the number in the lower four bits of a byte where k is even, else in the upper.
func e2m1(packed int32, k int) float32 {
	code := packed >> (4 * (k % 2)) & 15
	x := float32(fpmodel.Magnitudes[code&7])
	if code >= 8 {
		return -x
	}
	return x
}

func e8m0(b int32) float32 {
	if b&255 == 255 {
		return float32(math.NaN())
	}
	return float32(math.Ldexp(1, int(b&255)-127))
}

// e4m3 has no sign.
func e4m3(b int32) float32 {
	exponent, mantissa := int(b>>3), float64(b&7)
	switch {
	case b < 0 || b == 127:
		return float32(math.NaN())
	case exponent == 0:
		return float32(math.Ldexp(mantissa, -9))
	}
	return float32(math.Ldexp(8+mantissa, exponent-10))
}
