package testkernel

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// instructions are those of PTX, on float32, that kernels have as assembly. A predicate is 1 or 0.
var instructions = map[string]func(x []float32) float32{
	"rcp.approx.ftz.f32": func(x []float32) float32 { return float32(1 / float64(flushed(x[0]))) },
	"mul.rn.f32":         func(x []float32) float32 { return x[0] * x[1] },
	"mov.b32":            func(x []float32) float32 { return x[0] },
	"neg.f32":            func(x []float32) float32 { return -x[0] },
	"fma.rn.f32":         func(x []float32) float32 { return float32(math.FMA(float64(x[0]), float64(x[1]), float64(x[2]))) },
	"max.f32":            func(x []float32) float32 { return float32(number(math.Max)(float64(x[0]), float64(x[1]))) },
	"setp.num.f32": func(x []float32) float32 {
		if x[0] == x[0] && x[1] == x[1] {
			return 1
		}
		return 0
	},
	"selp.f32": func(x []float32) float32 {
		if x[2] != 0 {
			return x[0]
		}
		return x[1]
	},
}

// flushed is zero in the place of numbers below 2⁻¹²⁶.
func flushed(x float32) float32 {
	if math.Abs(float64(x)) < 0x1p-126 {
		return x * 0
	}
	return x
}

var assemblyText = regexp.MustCompile(`^ "\{ (.*); \}" \{constraints = "=f((?:,f)*)", packed_element = 1 : i32, pure = (?:true|false)\} `)

// assembly computes each element of a tensor by instructions.
func assembly(op *operation, args []*value, result kind) (*value, error) {
	m := assemblyText.FindStringSubmatch(op.words)
	if m == nil || len(m[2]) != len(",f")*len(args) {
		return nil, fmt.Errorf("%s is no assembly for %d operands", op.words, len(args))
	}
	out := &value{kind: result}
	for i := range args[0].floats {
		registers := map[string]float32{}
		for j, a := range args {
			registers[fmt.Sprint("$", j+1)] = a.floats[i]
		}
		for _, line := range strings.Split(m[1], "; ") {
			name, rest, _ := strings.Cut(line, " ")
			if name == ".reg" {
				continue
			}
			f := instructions[name]
			if f == nil {
				return nil, fmt.Errorf("there is no instruction %s", name)
			}
			operands := strings.Split(rest, ", ")
			var x []float32
			for _, o := range operands[1:] {
				v, ok := registers[o]
				if bits, err := strconv.ParseUint(strings.TrimPrefix(o, "0f"), 16, 32); strings.HasPrefix(o, "0f") && err == nil {
					v, ok = math.Float32frombits(uint32(bits)), true
				}
				if !ok {
					return nil, fmt.Errorf("%s: there is no %s", line, o)
				}
				x = append(x, v)
			}
			registers[operands[0]] = f(x)
		}
		y, ok := registers["$0"]
		if !ok {
			return nil, fmt.Errorf("%s has no result", m[1])
		}
		out.floats = append(out.floats, y)
	}
	return out, nil
}
