package triton

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
)

type value struct {
	name string
	elem string // f32, bf16, i1, i8 or i32
	dims []int  // of the tile, rows first; nil for a scalar
	facts
}

// typeText returns the MLIR type of a value with the given axes.
func typeText(elem string, dims []int) string {
	if dims == nil {
		return elem
	}
	var b strings.Builder
	b.WriteString("tensor<")
	for _, n := range dims {
		fmt.Fprintf(&b, "%dx", n)
	}
	return b.String() + elem + ">"
}

func (v value) typ() string { return typeText(v.elem, v.dims) }

func elem(d program.DType) string {
	switch d {
	case program.Float:
		return "f32"
	case program.Bool:
		return "i1"
	}
	return "i32"
}

func (w *writer) line(format string, args ...any) {
	fmt.Fprintf(w.out, "    "+format+"\n", args...)
}

// set adds an operation whose result has the given type. The format must omit the result's name.
func (w *writer) set(elem string, dims []int, format string, args ...any) value {
	w.named++
	v := value{name: fmt.Sprintf("%%v%d", w.named), elem: elem, dims: dims}
	w.line("%s = %s", v.name, fmt.Sprintf(format, args...))
	return v
}

// apply adds an operation whose operands and result have the same type.
func (w *writer) apply(op string, args ...value) value {
	return w.set(args[0].elem, args[0].dims, "%s %s : %s", op, names(args), args[0].typ())
}

func names(args []value) string {
	list := lists.Map(args, func(a value) string { return a.name })
	return strings.Join(list, ", ")
}

func (w *writer) cast(op string, x value, elem string) value {
	return w.set(elem, x.dims, "%s %s : %s to %s", op, x.name, x.typ(), typeText(elem, x.dims))
}

func types(args []value) string {
	list := lists.Map(args, value.typ)
	return strings.Join(list, ", ")
}

// library adds a call of a libdevice function whose result has the first operand's type.
func (w *writer) library(symbol string, args ...value) value {
	x := args[0]
	return w.set(x.elem, x.dims, `tt.extern_elementwise %s `+
		`{libname = "", libpath = "", pure = true, symbol = "%s"} : (%s) -> %s`,
		names(args), symbol, types(args), x.typ())
}

func (w *writer) constant(elem string, x float64) value {
	text := strconv.FormatInt(int64(int32(int64(x))), 10) + " : " + elem
	switch {
	case elem == "i1":
		text = strconv.FormatBool(x != 0)
	case elem == "f32" || elem == "bf16":
		text = float(float32(x)) + " : " + elem
	}
	v := w.set(elem, nil, "arith.constant %s", text)
	if elem == "f32" {
		x = float64(float32(x))
	}
	if elem == "i32" || elem == "f32" && !math.IsInf(x, 0) && !math.IsNaN(x) {
		v.facts = between(x, x)
		v.power = isPower(x)
	}
	v.inBFloat16 = elem == "f32" && math.Float32bits(float32(x))&0xffff == 0
	return v
}

// float formats a number for MLIR: with a decimal point, or as its bits.
func float(x float32) string {
	if f := float64(x); math.IsNaN(f) || math.IsInf(f, 0) {
		return fmt.Sprintf("0x%08X", math.Float32bits(x))
	}
	s := strconv.FormatFloat(float64(x), 'e', -1, 32)
	mantissa, exponent, _ := strings.Cut(s, "e")
	if !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	return mantissa + "e" + exponent
}

// broadcastTo broadcasts a value along the axes where dims are longer.
func (w *writer) broadcastTo(x value, dims []int) value {
	switch {
	case equal(x.dims, dims):
		return x
	case x.dims == nil:
		return w.rearrange("tt.splat", x, dims, "")
	}
	return w.rearrange("tt.broadcast", x, dims, "")
}

// rearrange adds an operation, with attributes, that moves or repeats the elements of x.
func (w *writer) rearrange(op string, x value, dims []int, attributes string) value {
	v := w.set(x.elem, dims, "%s %s%s : %s -> %s",
		op, x.name, attributes, x.typ(), typeText(x.elem, dims))
	v.facts = x.facts.ofElements()
	return v
}

func (w *writer) reshapeTo(x value, dims []int) value {
	if equal(x.dims, dims) {
		return x
	}
	if axes, ok := newAxes(x.dims, dims); ok {
		for _, axis := range axes {
			longer := slices.Insert(slices.Clone(x.dims), axis, 1)
			x = w.rearrange("tt.expand_dims", x, longer, fmt.Sprintf(" {axis = %d : i32}", axis))
		}
		return x
	}
	return w.rearrange("tt.reshape", x, dims, "")
}

// newAxes returns the axes of size one whose insertion into the first shape yields the second. ok
// is false if the shapes differ in other ways. Triton inserts such axes without moving elements
// between threads.
func newAxes(from, dims []int) (axes []int, ok bool) {
	for axis, n := range dims {
		switch {
		case len(from) > 0 && from[0] == n:
			from = from[1:]
		case n == 1:
			axes = append(axes, axis)
		default:
			return nil, false
		}
	}
	return axes, len(from) == 0
}

func equal(a, b []int) bool { return typeText("", a) == typeText("", b) }

// name returns the name of the kernel's function, which profilers show. It consists of the parts of
// the program's name before the slash and after the last dot, so that all tensors share one text.
func (w *writer) name() string {
	plugin, rest, _ := strings.Cut(w.p.Name, "/")
	kept := plugin + "_" + rest[strings.LastIndex(rest, ".")+1:]
	return "cage_" + strings.Map(func(r rune) rune {
		if r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return r
		}
		return '_'
	}, kept)
}
