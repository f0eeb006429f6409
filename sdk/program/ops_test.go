package program_test

import (
	"testing"

	"github.com/cage-qat/cage/sdk/program"
)

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
		if info.Name == "" || info.Meaning == "" || info.Gradient == "" || info.Class < program.ClassSource || info.Class > program.ClassLinalg {
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

// The numbers are those of the wire format: none may ever change.
func TestNumbersAreStable(t *testing.T) {
	want := map[string]program.Op{
		"constant": 1, "iota": 2, "random_bits": 3,
		"neg": 10, "abs": 11, "sign": 12, "sqrt": 13, "exp": 14, "expm1": 15, "log": 16, "log1p": 17, "tanh": 18,
		"floor": 19, "round": 20, "logb": 21, "is_finite": 22, "not": 23,
		"add": 30, "sub": 31, "mul": 32, "div": 33, "pow": 34, "max": 35, "min": 36, "ldexp": 37, "and": 38, "or": 39,
		"xor": 40, "shl": 41, "shr": 42, "clamp": 43,
		"eq": 50, "ne": 51, "lt": 52, "le": 53, "gt": 54, "ge": 55,
		"select": 60, "convert": 61, "bitcast": 62,
		"reshape": 70, "transpose": 71, "broadcast": 72, "slice": 73, "concatenate": 74,
		"reduce_sum": 80, "reduce_max": 81, "reduce_min": 82,
		"dot": 90, "hadamard": 91, "stop_gradient": 100, "qr": 110, "eigh_values": 111, "eigh_vectors": 112,
		"sort_columns": 113,
	}
	for _, info := range program.Ops() {
		if number, ok := want[info.Name]; ok && number != info.Op {
			t.Errorf("%s has the number %d, was %d", info.Name, info.Op, number)
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
