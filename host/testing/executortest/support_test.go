package executortest

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/cage-qat/cage/host/compute/cpu"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/host/compute/refresh"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

var rewrite = flag.Bool("update", false, "write docs/design/executors.md anew")

const page = "../../../docs/design/executors.md"

const head = `<!-- Written by: go test ./host/testing/executortest -run TestSupport -update -->

# Executors

Programs of plugins run on executors ([decision 4](04-cpu.md)).
On the CPU plans run them: operations of *cpu* in passes, others alone. Accelerators run them as parts of a *graph*; refreshes of
preconditioners run on *refresh*, on the host.
The operations are defined in [operations](../reference/operations.md). The table is made by trying one operation at a time, on tensors of 8 × 8
floats and what is made of them. One test suite compares all executors with the reference executor, in float64:
` + "`host/testing/executortest`" + `. A test compares this table with the executors.

| operation | cpu | graph | refresh |
|---|---|---|---|
`

// TestSupport checks the table of the operations that each executor supports.
func TestSupport(t *testing.T) {
	var text bytes.Buffer
	text.WriteString(head)
	for _, info := range program.Ops() {
		p, err := one(info)
		if err != nil {
			t.Fatalf("%s: %v", info.Name, err)
		}
		fmt.Fprintf(&text, "| `%s` | %s | %s | %s |\n", info.Name, fits(p), lowers(p), executes(p))
	}
	if *rewrite {
		if err := os.WriteFile(page, text.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, text.Bytes()) {
		t.Errorf("%s is not what the executors do: run this test with -update", page)
	}
}

// lowers returns the table entry of a program for graphs.
func lowers(p *program.Program) string {
	_, err := graphSubject.Compile(p)
	return answer(err)
}

// fits returns the table entry of a program for package cpu.
func fits(p *program.Program) string {
	_, err := cpu.CompileFlat(p, nil)
	return answer(err)
}

func executes(p *program.Program) string {
	in := map[string]reference.Tensor{}
	for _, input := range p.Inputs {
		values := make([]float64, input.Type.Size())
		for i := range values {
			values[i] = float64(1 + i%3)
		}
		in[input.Name] = reference.Floats(values, input.Type.Shape...)
	}
	_, err := refresh.Execute(p, in)
	return answer(err)
}

// answer returns "yes" if there is no error, and otherwise the reason of the refusal.
func answer(err error) string {
	var refused *passes.Refusal
	var graph *lower.UnsupportedError
	switch {
	case err == nil:
		return "yes"
	case errors.As(err, &refused):
		return "no: " + refused.Reason
	case errors.As(err, &graph):
		return "no: " + graph.Reason
	}
	return "error: " + err.Error()
}

// one returns a program that applies one operation, with floats as inputs and output.
func one(info program.OpInfo) (*program.Program, error) {
	b := program.NewBuilder("one")
	x, y := b.Input("x", program.FloatType(8, 8)), b.Input("y", program.FloatType(8, 8))
	apply := func(attr program.Attr, t program.Type, args ...program.Value) program.Value {
		return b.Apply(info.Op, attr, t, args...)
	}
	var z program.Value
	switch {
	case info.Op == program.OpConstant:
		z = x.Mul(b.Const(3))
	case info.Op == program.OpIota:
		z = apply(program.Attr{Axes: []int{1}}, program.FloatType(8, 8))
	case info.Op == program.OpRandomBits:
		key := b.Apply(program.OpConstant, program.Attr{Ints: []int64{3, 5}},
			program.Type{DType: program.Uint, Shape: []int{2}})
		z = apply(program.Attr{}, program.Type{DType: program.Uint, Shape: []int{8, 8}}, key)
	case info.Op == program.OpNot:
		z = apply(program.Attr{}, program.Type{}, x.Gt(y))
	case info.Op == program.OpAnd, info.Op == program.OpOr, info.Op == program.OpXor:
		z = apply(program.Attr{}, program.Type{}, x.Gt(y), x.Lt(y))
	case info.Op == program.OpShl, info.Op == program.OpShr:
		z = apply(program.Attr{}, program.Type{}, x.Convert(program.Int), y.Convert(program.Int))
	case info.Op == program.OpClamp:
		z = apply(program.Attr{}, program.Type{}, x, b.Const(-1), b.Const(1))
	case info.Op == program.OpSelect:
		z = apply(program.Attr{}, program.Type{}, x.Gt(y), x, y)
	case info.Op == program.OpConvert:
		z = apply(program.Attr{}, program.Type{DType: program.Int, Shape: []int{8, 8}}, x)
	case info.Op == program.OpBitcast:
		z = apply(program.Attr{}, program.Type{DType: program.Int, Shape: []int{8, 8}}, x)
	case info.Op == program.OpReshape:
		z = apply(program.Attr{}, program.FloatType(64), x)
	case info.Op == program.OpTranspose:
		z = apply(program.Attr{Axes: []int{1, 0}}, program.Type{}, x)
	case info.Op == program.OpBroadcast:
		z = apply(program.Attr{Axes: []int{0, 2}}, program.FloatType(8, 2, 8), x)
	case info.Op == program.OpSlice:
		z = apply(program.Attr{Start: []int{0, 0}, Limit: []int{4, 8}, Stride: []int{1, 1}},
			program.Type{}, x)
	case info.Op == program.OpConcatenate:
		z = apply(program.Attr{Axes: []int{0}}, program.Type{}, x, y)
	case info.Class == program.ClassReduce:
		z = apply(program.Attr{Axes: []int{0, 1}}, program.Type{}, x)
	case info.Op == program.OpDot:
		z = x.MatMul(y)
	case info.Op == program.OpHadamard:
		z = apply(program.Attr{Block: 8}, program.Type{}, x)
	case info.Op == program.OpLookup:
		z = apply(program.Attr{}, program.Type{}, x.Convert(program.Int), y)
	case info.Op == program.OpScatterAdd:
		z = apply(program.Attr{}, program.FloatType(8), x.Convert(program.Int), y)
	case info.Op == program.OpTopK, info.Op == program.OpOrderStatistic:
		z = apply(program.Attr{}, program.Type{}, x, b.ConstInt(3))
	case info.Op == program.OpSortColumns:
		z = apply(program.Attr{}, program.Type{}, x, y.ReduceSum(0))
	case info.Op == program.OpEighValues, info.Op == program.OpEighVectors:
		z = apply(program.Attr{}, program.Type{}, x) // only the lower triangle is read
	case info.Arity == 2:
		z = apply(program.Attr{}, program.Type{}, x, y)
	default:
		z = apply(program.Attr{}, program.Type{}, x)
	}
	if z.Type().DType != program.Float {
		z = z.Convert(program.Float)
	}
	b.Output("z", z)
	return b.Build()
}
