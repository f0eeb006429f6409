package testkernel

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// instructions implements the PTX instructions that occur in inline assembly. Operands are the bits
// of registers. A predicate is 1 or 0.
var instructions = map[string]func(x []uint32) uint32{
	"rcp.approx.ftz.f32": onFloats(func(x []float32) float32 {
		return float32(1 / float64(flushed(x[0])))
	}),
	"ex2.approx.ftz.f32": onFloats(func(x []float32) float32 {
		return flushed(float32(math.Exp2(float64(x[0]))))
	}),
	"mul.rn.f32":  onFloats(func(x []float32) float32 { return x[0] * x[1] }),
	"sub.rn.f32":  onFloats(func(x []float32) float32 { return x[0] - x[1] }),
	"neg.f32":     onFloats(func(x []float32) float32 { return -x[0] }),
	"fma.rn.f32":  onFloats(fused),
	"max.f32":     onPairs(number(math.Max)),
	"max.NaN.f32": onPairs(strict(math.Max)),
	"min.f32":     onPairs(number(math.Min)),
	"mov.b32":     func(x []uint32) uint32 { return x[0] },
	"shl.b32":     func(x []uint32) uint32 { return x[0] << x[1] },
	"and.b32":     func(x []uint32) uint32 { return x[0] & x[1] },
	"cvt.rn.bf16x2.f32": func(x []uint32) uint32 { // the first becomes the upper half
		rounded := func(x uint32) uint32 {
			return math.Float32bits(roundBFloat16(math.Float32frombits(x)))
		}
		return rounded(x[0])&upperHalf | rounded(x[1])>>16
	},
	"setp.num.f32": func(x []uint32) uint32 {
		if a, b := math.Float32frombits(x[0]), math.Float32frombits(x[1]); a == a && b == b {
			return 1
		}
		return 0
	},
	"selp.f32": func(x []uint32) uint32 {
		if x[2] != 0 {
			return x[0]
		}
		return x[1]
	},
}

func onFloats(f func(x []float32) float32) func(x []uint32) uint32 {
	return func(bits []uint32) uint32 {
		x := make([]float32, len(bits))
		for i, b := range bits {
			x[i] = math.Float32frombits(b)
		}
		return math.Float32bits(f(x))
	}
}

func onPairs(f func(x, y float64) float64) func(x []uint32) uint32 {
	return onFloats(func(x []float32) float32 { return float32(f(float64(x[0]), float64(x[1]))) })
}

// fused returns x·y + z, rounded once.
func fused(x []float32) float32 {
	return float32(math.FMA(float64(x[0]), float64(x[1]), float64(x[2])))
}

// flushed returns x, or a zero if |x| is below 2⁻¹²⁶.
func flushed(x float32) float32 {
	if math.Abs(float64(x)) < 0x1p-126 {
		return x * 0
	}
	return x
}

var assemblyText = regexp.MustCompile(
	`^ "\{ (.*); \}" \{constraints = "([=rf,]*)", packed_element = (\d) : i32, pure = (?:true|false)\} `)

// assembly executes inline assembly on all elements of a tensor, as many at once as are packed: a
// register holds one float32 or two bfloat16.
func assembly(op *operation, args []*value, result kind) (*value, error) {
	m := assemblyText.FindStringSubmatch(op.words)
	if m == nil {
		return nil, fmt.Errorf("cannot parse inline assembly %s", op.words)
	}
	packed, _ := strconv.Atoi(m[3])
	want := "=" + constraint(result.elem)
	for _, a := range args {
		want += strings.Repeat(","+constraint(a.elem), packed/halvesOf(a.elem))
	}
	if m[2] != want || packed%halvesOf(result.elem) != 0 || packed > 1 && result.elem == "f32" {
		return nil, fmt.Errorf("constraints are %s, want %s", m[2], want)
	}
	out := &value{kind: result}
	for i := 0; i < len(args[0].floats); i += packed {
		registers := map[string]uint32{}
		for _, a := range args {
			for j := i; j < i+packed; j += halvesOf(a.elem) {
				register := math.Float32bits(a.floats[j])
				if a.elem == "bf16" {
					register = register>>16 | math.Float32bits(a.floats[j+1])&upperHalf
				}
				registers[fmt.Sprint("$", len(registers)+1)] = register
			}
		}
		y, err := compute(m[1], registers)
		if err != nil {
			return nil, err
		}
		if result.elem == "bf16" {
			out.floats = append(out.floats, math.Float32frombits(y<<16), math.Float32frombits(y&upperHalf))
		} else {
			out.floats = append(out.floats, math.Float32frombits(y))
		}
	}
	return out, nil
}

const upperHalf = 0xFFFF0000

// halvesOf returns the number of elements per register.
func halvesOf(elem string) int {
	if elem == "bf16" {
		return 2
	}
	return 1
}

// constraint returns the register constraint for an element type.
func constraint(elem string) string { return map[string]string{"bf16": "r", "f32": "f"}[elem] }

// compute executes instructions and returns the value of register $0.
func compute(text string, registers map[string]uint32) (uint32, error) {
	for _, line := range strings.Split(text, "; ") {
		name, rest, _ := strings.Cut(line, " ")
		if name == ".reg" {
			continue
		}
		f := instructions[name]
		if f == nil {
			return 0, fmt.Errorf("unknown instruction %s", name)
		}
		operands := strings.Split(rest, ", ")
		var x []uint32
		for _, o := range operands[1:] {
			v, ok := registers[o]
			if digits, float := strings.CutPrefix(o, "0f"); float && !ok {
				o = "0x" + digits
			}
			if n, err := strconv.ParseUint(o, 0, 32); err == nil {
				v, ok = uint32(n), true
			}
			if !ok {
				return 0, fmt.Errorf("%s: there is no %s", line, o)
			}
			x = append(x, v)
		}
		registers[operands[0]] = f(x)
	}
	y, ok := registers["$0"]
	if !ok {
		return 0, fmt.Errorf("%s has no result", text)
	}
	return y, nil
}
