package wire_test

import (
	"math"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/testing/testlevel"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/cage-qat/cage/internal/testing/randprog"
	"github.com/cage-qat/cage/sdk/internal/wire"
	pb "github.com/cage-qat/cage/sdk/internal/wire/cage/plugin/v1"
	"github.com/cage-qat/cage/sdk/program"
)

// TestOperations checks that the enumeration in the .proto file equals the table of operations.
func TestOperations(t *testing.T) {
	known := map[int32]bool{0: true}
	for _, info := range program.Ops() {
		known[int32(info.Op)] = true
		want := "OP_" + strings.ToUpper(info.Name)
		if got := pb.Op_name[int32(info.Op)]; got != want {
			t.Errorf("operation %d is %q in the .proto file, want %q", info.Op, got, want)
		}
	}
	for number, name := range pb.Op_name {
		if !known[number] {
			t.Errorf("%s is not in the table of operations", name)
		}
	}
}

func TestElementTypes(t *testing.T) {
	for _, d := range []program.DType{program.Float, program.Int, program.Uint, program.Bool} {
		if got, want := pb.DType_name[int32(d)], "DTYPE_"+strings.ToUpper(d.String()); got != want {
			t.Errorf("element type %d is %q in the .proto file, want %q", d, got, want)
		}
	}
	if len(pb.DType_name) != 5 {
		t.Errorf("the .proto file has %d element types", len(pb.DType_name))
	}
}

// travel sends a program over the wire and returns it.
func travel(t *testing.T, p *program.Program) *program.Program {
	t.Helper()
	data, err := proto.Marshal(wire.ToProgram(p))
	if err != nil {
		t.Fatal(err)
	}
	var m pb.Program
	if err := wire.Decode(data, &m); err != nil {
		t.Fatal(err)
	}
	got, err := wire.FromProgram(&m)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestRoundTrip(t *testing.T) {
	for seed := range testlevel.Sample[uint64](25, 100, 100) {
		p := randprog.New(seed, randprog.Options{Nodes: 60, Ops: everyOp()}).Program
		got := travel(t, p)
		if diff := cmp.Diff(p, got, cmpopts.EquateEmpty(), cmpopts.EquateNaNs()); diff != "" {
			t.Fatalf("seed %d: the program changed (-sent +received):\n%s", seed, diff)
		}
		if got.Hash() != p.Hash() {
			t.Fatalf("seed %d: the hash changed", seed)
		}
		if err := got.Validate(program.Limits{Linalg: true}); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func everyOp() []program.Op {
	var ops []program.Op
	for _, info := range program.Ops() {
		ops = append(ops, info.Op)
	}
	return ops
}

// TestConstants checks that constants keep their bits, those of NaN and −0 included.
func TestConstants(t *testing.T) {
	b := program.NewBuilder("constants")
	x := b.Input("x", program.FloatType())
	for _, v := range []float64{math.Copysign(0, -1), math.Inf(1), math.NaN(),
		math.SmallestNonzeroFloat64, 1 + 0x1p-52} {
		x = x.Add(b.Const(v))
	}
	b.Output("y", x)
	b.Output("i", b.ConstInt(math.MinInt32))
	b.Output("u", b.ConstUint(math.MaxUint32))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	got := travel(t, p)
	for i, n := range p.Nodes {
		for j, v := range n.Attr.Floats {
			if w := got.Nodes[i].Attr.Floats[j]; math.Float64bits(v) != math.Float64bits(w) {
				t.Errorf("%v arrived as %v", v, w)
			}
		}
	}
	if got.Hash() != p.Hash() {
		t.Error("the hash changed")
	}
}

func TestNilProgram(t *testing.T) {
	if wire.ToProgram(nil) != nil {
		t.Error("a program from nothing")
	}
	if _, err := wire.FromProgram(nil); err == nil {
		t.Error("nothing was read as a program")
	}
}

func TestFromProgramRefuses(t *testing.T) {
	const x = `name: "p" inputs { name: "x" type { dtype: DTYPE_FLOAT shape: 4 } } `
	cases := []struct{ text, says string }{
		{`inputs { name: "x" }`, "input 0: the type is absent"},
		{`inputs { name: "x" type { shape: 4 } }`, "element type 0"},
		{`inputs { name: "x" type { dtype: 261 } }`, "element type 261"},
		{`inputs { name: "x" type { dtype: -1 } }`, "element type -1"},
		{`inputs { name: "x" type { dtype: DTYPE_FLOAT shape: 4294967295 } }`,
			"an axis whose size is 4294967295"},
		{x + `nodes { }`, "node 0: operation 0 does not exist"},
		{x + `nodes { op: -5 }`, "operation -5 does not exist"},
		{x + `nodes { op: 65537 }`, "operation 65537 does not exist"},
		{x + `nodes { op: OP_NEG }`, "neg: the type is absent"},
		{x + `nodes { op: OP_NEG args: 2147483648 type { dtype: DTYPE_FLOAT } }`,
			"operand is 2147483648"},
		{x + `nodes { op: OP_SLICE type { dtype: DTYPE_FLOAT } attr { start: 3000000000 } }`,
			"attribute start is 3000000000"},
		{x + `nodes { op: OP_HADAMARD type { dtype: DTYPE_FLOAT } attr { block: 3000000000 } }`,
			"attribute block is 3000000000"},
		{x + `outputs { value: 3000000000 }`, "output 0: the value is 3000000000"},
	}
	for _, c := range cases {
		var m pb.Program
		if err := prototext.Unmarshal([]byte(c.text), &m); err != nil {
			t.Fatalf("%s: %v", c.text, err)
		}
		if _, err := wire.FromProgram(&m); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q", c.text, err, c.says)
		}
	}
}

func TestValues(t *testing.T) {
	sent := map[string]any{"i": -3, "f": 0.5, "b": true, "s": "text", "zero": 0, "no": false,
		"empty": ""}
	m, err := wire.ToValues(sent)
	if err != nil {
		t.Fatal(err)
	}
	got, err := wire.FromValues(m)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sent, got); diff != "" {
		t.Errorf("the values changed (-sent +received):\n%s", diff)
	}
	if _, err := wire.ToValues(map[string]any{"list": []int{1}}); err == nil ||
		!strings.Contains(err.Error(), "parameter list") {
		t.Errorf("a list was sent: %v", err)
	}
	if _, err := wire.FromValues(map[string]*pb.Value{"v": {}}); err == nil ||
		!strings.Contains(err.Error(), "is absent") {
		t.Errorf("an absent value was read: %v", err)
	}
}

func TestShapes(t *testing.T) {
	for _, bad := range [][]int{{0}, {-1}, {4, math.MaxInt32 + 1}} {
		if _, err := wire.ToShape(bad); err == nil {
			t.Errorf("%v was sent", bad)
		}
	}
	for _, bad := range [][]uint32{{0}, {1 << 31}} {
		if _, err := wire.FromShape(bad); err == nil {
			t.Errorf("%v was read", bad)
		}
	}
	m, err := wire.ToShape([]int{3, math.MaxInt32})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := wire.FromShape(m); err != nil || got[0] != 3 || got[1] != math.MaxInt32 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestNames(t *testing.T) {
	for word, number := range wire.TensorRoles {
		if got, err := wire.TensorRoles.Word(number, "role"); err != nil || got != word {
			t.Errorf("%q became %q", word, got)
		}
	}
	if len(wire.TensorRoles) != len(pb.TensorRole_name)-1 ||
		len(wire.SiteRoles) != len(pb.SiteRole_name)-1 ||
		len(wire.SiteProducts) != len(pb.SiteProduct_name) ||
		len(wire.ParameterTypes) != len(pb.ParameterType_name)-1 {
		t.Error("an enumeration of the .proto files has members without a word")
	}
	if _, err := wire.SiteRoles.Word(0, "role"); err == nil {
		t.Error("the unspecified role has a word")
	}
	if _, err := wire.SiteRoles.Number("no role", "role"); err == nil {
		t.Error("an unknown role has a number")
	}
}
