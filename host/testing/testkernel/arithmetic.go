package testkernel

import (
	"fmt"
	"math"
)

// library maps the libdevice functions that kernels call to Go functions.
var library = map[string]func(x, y float64) float64{
	"__nv_expf":   func(x, _ float64) float64 { return math.Exp(x) },
	"__nv_expm1f": func(x, _ float64) float64 { return math.Expm1(x) },
	"__nv_logf":   func(x, _ float64) float64 { return math.Log(x) },
	"__nv_log1pf": func(x, _ float64) float64 { return math.Log1p(x) },
	"__nv_tanhf":  func(x, _ float64) float64 { return math.Tanh(x) },
	"__nv_sinf":   func(x, _ float64) float64 { return math.Sin(x) },
	"__nv_cosf":   func(x, _ float64) float64 { return math.Cos(x) },
	"__nv_floorf": func(x, _ float64) float64 { return math.Floor(x) },
	"__nv_rintf":  func(x, _ float64) float64 { return math.RoundToEven(x) },
	"__nv_logbf":  func(x, _ float64) float64 { return math.Logb(x) },
	"__nv_powf":   math.Pow,
	"__nv_ldexpf": func(x, n float64) float64 { return math.Ldexp(x, int(n)) },
}

// Operations on one float, on two floats, and on two integers.
var (
	floats1 = map[string]func(x float64) float64{
		"arith.negf":      func(x float64) float64 { return -x },
		"math.absf":       math.Abs,
		"tt.precise_sqrt": math.Sqrt,
		"arith.extf":      func(x float64) float64 { return x },
		"arith.truncf":    func(x float64) float64 { return float64(roundBFloat16(float32(x))) },
	}
	floats2 = map[string]func(x, y float64) float64{
		"arith.addf":      func(x, y float64) float64 { return x + y },
		"arith.subf":      func(x, y float64) float64 { return x - y },
		"arith.mulf":      func(x, y float64) float64 { return x * y },
		"tt.precise_divf": func(x, y float64) float64 { return x / y },
		"arith.maximumf":  strict(math.Max), "arith.minimumf": strict(math.Min),
		"arith.maxnumf": number(math.Max), "arith.minnumf": number(math.Min),
	}
	integers2 = map[string]func(x, y int32) int32{
		"arith.addi":  func(x, y int32) int32 { return x + y },
		"arith.subi":  func(x, y int32) int32 { return x - y },
		"arith.muli":  func(x, y int32) int32 { return x * y },
		"arith.divui": func(x, y int32) int32 { return int32(uint32(x) / uint32(y)) },
		"arith.remui": func(x, y int32) int32 { return int32(uint32(x) % uint32(y)) },
		"arith.andi":  func(x, y int32) int32 { return x & y },
		"arith.ori":   func(x, y int32) int32 { return x | y },
		"arith.xori":  func(x, y int32) int32 { return x ^ y },
		"arith.shli":  func(x, y int32) int32 { return x << uint32(y) },
		"arith.shrsi": func(x, y int32) int32 { return x >> uint32(y) },
		"arith.shrui": func(x, y int32) int32 { return int32(uint32(x) >> uint32(y)) },
		"arith.maxsi": func(x, y int32) int32 { return max(x, y) },
		"arith.minsi": func(x, y int32) int32 { return min(x, y) },
		"arith.maxui": func(x, y int32) int32 { return int32(max(uint32(x), uint32(y))) },
		"arith.minui": func(x, y int32) int32 { return int32(min(uint32(x), uint32(y))) },
	}
)

// strict returns f with NaN as the result if any argument is NaN. math.Max returns infinity for NaN
// and infinity.
func strict(f func(x, y float64) float64) func(x, y float64) float64 {
	return func(x, y float64) float64 {
		if math.IsNaN(x) || math.IsNaN(y) {
			return math.NaN()
		}
		return f(x, y)
	}
}

// number returns f, except that if one argument is NaN, the result is the other one.
func number(f func(x, y float64) float64) func(x, y float64) float64 {
	return func(x, y float64) float64 {
		switch {
		case math.IsNaN(x):
			return y
		case math.IsNaN(y):
			return x
		}
		return f(x, y)
	}
}

// elementwise2 applies f to floats, or g to integers, element by element.
func elementwise2(k kind, x, y *value, f func(x, y float64) float64,
	g func(x, y int32) int32) (*value, error) {
	out := &value{kind: k, tensor: x.tensor}
	for i := range max(len(x.floats), len(x.integers)) {
		switch {
		case x.isFloat() && f != nil && len(y.floats) > 0:
			out.floats = append(out.floats, float32(f(float64(x.floats[i]), float64(y.floats[i]))))
		case x.isFloat() && f != nil:
			out.floats = append(out.floats, float32(f(float64(x.floats[i]), float64(y.integers[i]))))
		case !x.isFloat() && g != nil:
			out.integers = append(out.integers, g(x.integers[i], y.integers[i]))
		default:
			return nil, fmt.Errorf("unsupported operation on %s", x.elem)
		}
	}
	return out, nil
}

func arithmetic(op *operation, args []*value, result kind) (*value, error) {
	x := args[0]
	if f, ok := floats1[op.name]; ok && len(args) == 1 && x.isFloat() {
		return elementwise2(result, x, x, func(x, _ float64) float64 { return f(x) }, nil)
	}
	if op.name == "tt.extern_elementwise" {
		f, ok := library[op.symbol()]
		if !ok {
			return nil, fmt.Errorf("testkernel has no Go version of %q: add it to the table library",
				op.symbol())
		}
		return elementwise2(result, x, args[len(args)-1], f, nil)
	}
	f, g := floats2[op.name], integers2[op.name]
	if len(args) == 2 && (f != nil || g != nil) {
		return elementwise2(result, x, args[1], f, g)
	}
	if op.name == "arith.cmpf" || op.name == "arith.cmpi" {
		return compare(op, x, args[1])
	}
	return convert(op, x, result)
}

// Predicates of comparisons. Ordered ones, with the prefix "o", are false for NaN.
var (
	floatPredicates = map[string]func(x, y float32) bool{
		"oeq": func(x, y float32) bool { return x == y },
		"une": func(x, y float32) bool { return x != y },
		"olt": func(x, y float32) bool { return x < y }, "ole": func(x, y float32) bool { return x <= y },
		"ogt": func(x, y float32) bool { return x > y }, "oge": func(x, y float32) bool { return x >= y },
		"uno": func(x, y float32) bool { return x != x || y != y },
	}
	integerPredicates = map[string]func(x, y int32) bool{
		"eq": func(x, y int32) bool { return x == y }, "ne": func(x, y int32) bool { return x != y },
		"slt": func(x, y int32) bool { return x < y }, "sle": func(x, y int32) bool { return x <= y },
		"sgt": func(x, y int32) bool { return x > y }, "sge": func(x, y int32) bool { return x >= y },
		"ult": func(x, y int32) bool { return uint32(x) < uint32(y) },
		"ule": func(x, y int32) bool { return uint32(x) <= uint32(y) },
		"ugt": func(x, y int32) bool { return uint32(x) > uint32(y) },
		"uge": func(x, y int32) bool { return uint32(x) >= uint32(y) },
	}
)

// compare returns 1 for true and 0 for false.
func compare(op *operation, x, y *value) (*value, error) {
	var predicate string
	if _, err := fmt.Sscanf(op.words, " %s", &predicate); err != nil {
		return nil, err
	}
	predicate = predicate[:len(predicate)-1] // without the comma
	if (op.name == "arith.cmpf") != x.isFloat() {
		return nil, fmt.Errorf("comparison of the wrong type %s", x.elem)
	}
	f, g := floatPredicates[predicate], integerPredicates[predicate]
	if x.isFloat() && f == nil || !x.isFloat() && g == nil {
		return nil, fmt.Errorf("unknown predicate %q for %s", predicate, x.elem)
	}
	out := &value{kind: kind{"i1", x.dims},
		integers: make([]int32, max(len(x.floats), len(x.integers)))}
	for i := range out.integers {
		if x.isFloat() && f(x.floats[i], y.floats[i]) || !x.isFloat() && g(x.integers[i], y.integers[i]) {
			out.integers[i] = 1
		}
	}
	return out, nil
}

// convert executes casts, other type conversions and math.absi.
func convert(op *operation, x *value, result kind) (*value, error) {
	out := &value{kind: result}
	for i := range max(len(x.floats), len(x.integers)) {
		switch {
		case op.name == "arith.sitofp":
			out.floats = append(out.floats, float32(x.integers[i]))
		case op.name == "arith.uitofp" && x.elem == "i1":
			out.floats = append(out.floats, float32(x.integers[i]))
		case op.name == "arith.uitofp":
			out.floats = append(out.floats, float32(uint32(x.integers[i])))
		case op.name == "arith.extui" && x.elem == "i1", op.name == "arith.extsi" && x.elem == "i32":
			out.integers = append(out.integers, x.integers[i])
		case op.name == "arith.trunci" && result.elem == "i8":
			out.integers = append(out.integers, int32(int8(x.integers[i])))
		case op.name == "arith.fptosi":
			out.integers = append(out.integers, saturated(float64(x.floats[i])))
		case op.name == "arith.fptoui":
			out.integers = append(out.integers,
				int32(uint32(max(0, min(float64(x.floats[i]), math.MaxUint32)))))
		case op.name == "tt.bitcast" && x.isFloat():
			out.integers = append(out.integers, int32(math.Float32bits(x.floats[i])))
		case op.name == "tt.bitcast":
			out.floats = append(out.floats, math.Float32frombits(uint32(x.integers[i])))
		case op.name == "math.absi":
			out.integers = append(out.integers, max(x.integers[i], -x.integers[i]))
		default:
			return nil, fmt.Errorf("unsupported operation on %s", x.elem)
		}
	}
	return out, nil
}

// saturated truncates x to an integer with saturation, as GPUs do.
func saturated(x float64) int32 {
	switch {
	case x != x:
		return 0
	case x >= math.MaxInt32:
		return math.MaxInt32
	case x <= math.MinInt32:
		return math.MinInt32
	}
	return int32(x)
}
