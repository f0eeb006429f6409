package program_test

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// line returns the line number of its caller.
func line() int {
	_, _, n, _ := runtime.Caller(1)
	return n
}

// TestMistakesNameTheLine checks that the first mistake is reported with its line in the author's
// code, even if functions of the builder lie between.
func TestMistakesNameTheLine(t *testing.T) {
	type value = program.Value
	cases := []struct {
		name string
		f    func(b *program.Builder, x value) int // x: float[2,3]; returns the line of the mistake
		want string
	}{
		{"shapes", func(b *program.Builder, x value) int { x.Add(b.Zeros(4)); return line() },
			"add: shapes [2 3] and [4] do not match: ranks must be equal and axes equal or 1 (reshape or " +
				"broadcast one operand)"},
		{"types", func(b *program.Builder, x value) int { x.Mul(b.ConstInt(2)).Exp(); return line() },
			"mul: operands have different element types: float[2,3] and int"},
		{"through a convenience",
			func(b *program.Builder, x value) int { x.Convert(program.Int).MeanRow(); return line() },
			"mul: operands have different element types: int[2,1] and float"},
		{"scalar row", func(b *program.Builder, x value) int { x.SumAll().MaxRow(); return line() },
			"reduce_max: axis 0 does not exist: the rank is 0"},
		{"clip to nothing", func(b *program.Builder, x value) int { x.Clip(2, 1); return line() },
			"clip to [2, 1]: the lower bound must not be above the upper"},
		{"clip to NaN", func(b *program.Builder, x value) int { x.Clip(0, math.NaN()); return line() },
			"clip to [0, NaN]: neither bound may be NaN"},
		{"absent bound", func(b *program.Builder, x value) int {
			x.Clamp(b.Const(1), value{})
			return line() - 1
		}, "clamp: operand 2 is absent: a zero Value, such as that of a wrong map key"},
		{"absent operand", func(b *program.Builder, x value) int { x.Add(value{}); return line() },
			"add: operand 1 is absent: a zero Value, such as that of a wrong map key"},
		{"operand of another program", func(b *program.Builder, x value) int {
			other := program.NewBuilder("other").Input("y", fl(2, 3))
			x.Add(other)
			return line() - 1
		}, "add: operand 1 belongs to another program"},
		{"input after an operation",
			func(b *program.Builder, x value) int { x.Exp(); b.Input("late", fl()); return line() },
			`input "late": declared after the first operation`},
		{"input declared twice",
			func(b *program.Builder, x value) int { b.Input("x", fl()); return line() },
			`input "x": declared twice`},
		{"input name", func(b *program.Builder, x value) int { b.Input("", fl()); return line() },
			`input "": the name is empty`},
		{"input type", func(b *program.Builder, x value) int { b.Input("y", fl(0)); return line() },
			`input "y": axis 0 has 0 elements, want at least 1`},
		{"absent output", func(b *program.Builder, x value) int { b.Output("y", value{}); return line() },
			`output "y": is absent: a zero Value, such as that of a wrong map key`},
		{"constant", func(b *program.Builder, x value) int { b.Table([]float64{1, 2}, 3); return line() },
			"constant: got 2 elements for float[3], want 1 or 3"},
		{"huge shape", func(b *program.Builder, x value) int { b.Zeros(1<<20, 1<<20); return line() },
			"constant: float[1048576,1048576] has more than 2147483647 elements"},
		{"only the first", func(b *program.Builder, x value) int {
			first := x.Reshape(5)
			at := line() - 1
			first.Add(value{}).Transpose(9)
			b.Output("y", first)
			return at
		}, "reshape: cannot reshape float[2,3] to [5]: got 6 elements, want 5"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := program.NewBuilder("q")
			at := c.f(b, b.Input("x", fl(2, 3)))
			want := fmt.Sprintf("program \"q\": %s (builder_test.go:%d)", c.want, at)
			_, err := b.Build()
			if err == nil || err.Error() != want {
				t.Errorf("got  %v\nwant %s", err, want)
			}
			if b.Err() == nil || b.Err().Error() != want {
				t.Errorf("Err: %v", b.Err())
			}
		})
	}
}

// TestOperationOnAnAbsentValue checks that the error names the line of the operation, although a
// zero Value belongs to no program.
func TestOperationOnAnAbsentValue(t *testing.T) {
	b := program.NewBuilder("q")
	x := b.Input("x", fl())
	var mask program.Value
	y, at := mask.Neg(), line()
	b.Output("y", x.Add(y))
	_, err := b.Build()
	want := fmt.Sprintf("add: operand 1 comes from an operation that failed: program \"absent\": "+
		"operation on an absent value: a zero Value, such as that of a wrong map key "+
		"(builder_test.go:%d)", at)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestBuildErrors(t *testing.T) {
	b := program.NewBuilder("q")
	x := b.Input("x", fl())
	b.Output("y", x)
	b.Output("y", x)
	if _, err := b.Build(); err == nil ||
		!strings.Contains(err.Error(), `output 1 ("y"): the name is used twice`) {
		t.Errorf("two outputs of a name: %v", err)
	}
	if _, err := program.NewBuilder("q").Build(); err == nil ||
		!strings.Contains(err.Error(), "outputs: there are none") {
		t.Errorf("no outputs: %v", err)
	}
	if _, err := program.NewBuilder("two words").Build(); err == nil ||
		!strings.Contains(err.Error(), "the name contains ' '") {
		t.Errorf("bad name: %v", err)
	}
}

func TestValue(t *testing.T) {
	b := program.NewBuilder("q")
	x := b.Input("x", fl(2, 3))
	if !x.Valid() || x.Builder() != b || !x.Type().Equal(fl(2, 3)) {
		t.Errorf("x is %s of %v", x.Type(), x.Builder())
	}
	x.Shape()[0] = 99
	x.Type().Shape[0] = 99
	if !x.Type().Equal(fl(2, 3)) {
		t.Errorf("x became %s", x.Type())
	}
	var absent program.Value
	if absent.Valid() || absent.Builder().Err() == nil || absent.Shape() != nil ||
		absent.Type().DType != program.Invalid {
		t.Error("the zero Value is something")
	}
	if _, ok := absent.Constant(); ok {
		t.Error("the zero Value is a constant")
	}
	if x.Reshape(7).Type().DType != program.Invalid {
		t.Error("a failed value has a type")
	}
}

// TestBuilderKeepsItsOwnSlices checks that authors may change slices that they passed in.
func TestBuilderKeepsItsOwnSlices(t *testing.T) {
	b := program.NewBuilder("q")
	shape, perm, data, to := []int{2, 3}, []int{1, 0}, []float64{1, 2}, []int{6}
	x := b.Input("x", fl(shape...))
	b.Output("transposed", x.Transpose(perm...))
	b.Output("reshaped", x.Reshape(to...))
	b.Output("table", b.Table(data, 2))
	shape[0], perm[0], data[0], to[0] = 99, 0, 99, 99
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	const want = `program q(%0 x: float[2,3]) {
  %1 = transpose %0 axes=[1,0] : float[3,2]
  %2 = reshape %0 : float[6]
  %3 = constant {1 2} : float[2]
  return transposed=%1 reshaped=%2 table=%3
}
`
	if diff := cmp.Diff(want, p.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestUnusedNodesAreDropped(t *testing.T) {
	b := program.NewBuilder("q")
	x := b.Input("x", fl(2))
	b.Input("unused", fl(3))
	x.Exp().Log()
	b.Output("y", x.Shift(2).Scale(2)) // one constant for both
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	const want = `program q(%0 x: float[2], %1 unused: float[3]) {
  %2 = constant 2 : float
  %3 = add %0 %2 : float[2]
  %4 = mul %3 %2 : float[2]
  return y=%4
}
`
	if diff := cmp.Diff(want, p.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// scaled returns the program y = x·c, z = −x for x of the given shape.
func scaled(t *testing.T, c float64, shape ...int) *program.Program {
	t.Helper()
	b := program.NewBuilder("scaled")
	x := b.Input("x", fl(shape...))
	b.Output("y", x.Scale(c))
	b.Output("z", x.Neg())
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestInline(t *testing.T) {
	p := scaled(t, 3, 2)
	b := program.NewBuilder("twice")
	x := b.Input("x", fl(2))
	once := transform.Inline(b, p, x)
	twice := transform.Inline(b, p, once["y"])
	b.Output("y", twice["y"])
	b.Output("same", transform.Inline(b, p, x)["z"])
	got, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	const want = `program twice(%0 x: float[2]) {
  %1 = constant 3 : float
  %2 = mul %0 %1 : float[2]
  %3 = constant 3 : float
  %4 = mul %2 %3 : float[2]
  %5 = neg %0 : float[2]
  return y=%4 same=%5
}
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestInlineErrors(t *testing.T) {
	p := scaled(t, 3, 2)
	cases := []struct {
		name string
		args func(b *program.Builder) []program.Value
		want string
	}{
		{"count", func(b *program.Builder) []program.Value { return nil },
			`program "scaled" takes 1 inputs, got 0`},
		{"type", func(b *program.Builder) []program.Value { return []program.Value{b.Zeros(3)} },
			`program "scaled": input "x" is float[2], got float[3]`},
		{"absent", func(b *program.Builder) []program.Value { return []program.Value{{}} },
			`program "scaled": input "x": is absent: a zero Value, such as that of a wrong map key`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := program.NewBuilder("q")
			b.Input("x", fl(2))
			results := transform.Inline(b, p, c.args(b)...)
			want := fmt.Sprintf("program \"q\": %s (builder_test.go:%d)", c.want, line()-1)
			if err := b.Err(); err == nil || err.Error() != want {
				t.Errorf("got  %v\nwant %s", err, want)
			}
			if len(results) != 0 {
				t.Errorf("results of a failed call: %v", results)
			}
		})
	}
}

func TestTrim(t *testing.T) {
	p := scaled(t, 3, 2)
	got, err := transform.Trim(p, "z")
	if err != nil {
		t.Fatal(err)
	}
	const want = `program scaled(%0 x: float[2]) {
  %1 = neg %0 : float[2]
  return z=%1
}
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	swapped, err := transform.Trim(p, "z", "y")
	if err != nil {
		t.Fatal(err)
	}
	if swapped.Outputs[0].Name != "z" || swapped.Outputs[1].Name != "y" {
		t.Errorf("outputs are %v", swapped.Outputs)
	}
	if _, err := transform.Trim(p, "w"); err == nil ||
		err.Error() != `program "scaled" has no output "w"` {
		t.Errorf("unknown output: %v", err)
	}
	if _, err := transform.Trim(p); err == nil {
		t.Error("a program without outputs was accepted")
	}
}

func TestLookups(t *testing.T) {
	p := scaled(t, 3, 2)
	if p.NumValues() != 4 || p.Node(0) != nil || p.Node(1).Op != program.OpConstant ||
		p.Node(4) != nil || p.Node(-1) != nil {
		t.Errorf("values of\n%s", p)
	}
	if id, ok := p.Output("z"); !ok || id != 3 || !p.TypeOf(id).Equal(fl(2)) {
		t.Errorf("output z is %d, %v", id, ok)
	}
	if _, ok := p.Output("x"); ok {
		t.Error("an input is found as an output")
	}
	if p.Input("x") != 0 || p.Input("y") != -1 {
		t.Error("inputs are not found by name")
	}
}

func TestTableIsComplete(t *testing.T) {
	names := map[string]program.Op{}
	last := program.OpInvalid
	for _, info := range program.Ops() {
		if info.Op <= last {
			t.Errorf("%s: number %d stands after %d", info.Name, info.Op, last)
		}
		last = info.Op
		if other, ok := names[info.Name]; ok {
			t.Errorf("%d and %d are both called %s", info.Op, other, info.Name)
		}
		names[info.Name] = info.Op
		if info.Name == "" || info.Meaning == "" || info.Gradient == "" ||
			info.Class < program.ClassSource || info.Class > program.ClassTable {
			t.Errorf("%d: incomplete: %+v", info.Op, info)
		}
		if (info.Arity != 0) != (info.Operands != "") {
			t.Errorf("%s: %d operands of types %q", info.Name, info.Arity, info.Operands)
		}
		if got, ok := info.Op.Info(); !ok || got != info || info.Op.String() != info.Name {
			t.Errorf("%s is not found by its number", info.Name)
		}
	}
	if _, ok := program.OpInvalid.Info(); ok || program.OpInvalid.String() != "invalid" {
		t.Error("the invalid operation exists")
	}
}

// TestNumbersAreStable checks the numbers of the wire format, which must never change.
func TestNumbersAreStable(t *testing.T) {
	want := map[string]program.Op{
		"constant": 1, "iota": 2, "random_bits": 3,
		"neg": 10, "abs": 11, "sign": 12, "sqrt": 13, "exp": 14, "expm1": 15, "log": 16, "log1p": 17,
		"tanh": 18, "sin": 24, "cos": 25,
		"floor": 19, "round": 20, "logb": 21, "is_finite": 22, "not": 23,
		"add": 30, "sub": 31, "mul": 32, "div": 33, "pow": 34, "max": 35, "min": 36, "ldexp": 37,
		"and": 38, "or": 39,
		"xor": 40, "shl": 41, "shr": 42, "clamp": 43,
		"eq": 50, "ne": 51, "lt": 52, "le": 53, "gt": 54, "ge": 55,
		"select": 60, "convert": 61, "bitcast": 62,
		"reshape": 70, "transpose": 71, "broadcast": 72, "slice": 73, "concatenate": 74,
		"reduce_sum": 80, "reduce_max": 81, "reduce_min": 82,
		"dot": 90, "hadamard": 91, "stop_gradient": 100, "qr": 110, "eigh_values": 111,
		"eigh_vectors": 112,
		"sort_columns": 113,
		"nearest":      120, "lookup": 121, "scatter_add": 122, "top_k": 123, "order_statistic": 124,
	}
	for _, info := range program.Ops() {
		if number := want[info.Name]; number != info.Op && info.Class != program.ClassGradient {
			t.Errorf("%s has the number %d, and here %d", info.Name, info.Op, number)
		}
		delete(want, info.Name)
	}
	for name := range want {
		t.Errorf("%s is gone", name)
	}
	if program.Float != 1 || program.Int != 2 || program.Uint != 3 || program.Bool != 4 {
		t.Error("the numbers of the element types changed")
	}
}

func TestOpsIsACopy(t *testing.T) {
	program.Ops()[0].Name = "changed"
	if program.Ops()[0].Name != "constant" {
		t.Error("a caller can change the table")
	}
}
