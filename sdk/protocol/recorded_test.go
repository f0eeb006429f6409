// Package protocol has test data for plugins in other languages: programs with their text hashes
// and results, and requests with their answers. README.md describes the files. The tests check that
// the files match the code; with -update they write the files.
package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/cage-qat/cage/internal/testing/randprog"
	"github.com/cage-qat/cage/sdk/internal/wire"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/program/transform"
)

var update = flag.Bool("update", false, "write the files")

// recordedProgram is a line of programs.jsonl.
type recordedProgram struct {
	Program json.RawMessage      `json:"program"` // the message, in the JSON form of protobuf
	Hash    string               `json:"hash"`
	Inputs  map[string][]numeral `json:"inputs"` // elements in row-major order
	Outputs map[string][]numeral `json:"outputs"`
}

// numeral is a number in JSON: non-finite numbers are strings, and so is −0, which some readers
// take for an integer.
type numeral float64

// MarshalJSON writes strings that Python's float() and Go's strconv.ParseFloat can read.
func (n numeral) MarshalJSON() ([]byte, error) {
	if v := float64(n); math.IsNaN(v) || math.IsInf(v, 0) || v == 0 && math.Signbit(v) {
		return json.Marshal(fmt.Sprint(v))
	}
	return json.Marshal(float64(n))
}

// UnmarshalJSON reads the output of MarshalJSON.
func (n *numeral) UnmarshalJSON(text []byte) error {
	v, err := strconv.ParseFloat(strings.Trim(string(text), `"`), 64)
	*n = numeral(v)
	return err
}

// TestPrograms checks random programs with all operations, and each elementwise operation on
// numbers at the ends of its range.
func TestPrograms(t *testing.T) {
	var all, random []program.Op
	for _, info := range program.Ops() {
		if all = append(all, info.Op); info.Op != program.OpEighVectors { // its signs are not defined
			random = append(random, info.Op)
		}
	}
	cases := []randprog.Case{unaries(t), binaries(t), integers(t), eigenvectors(t)}
	for seed := range uint64(60) {
		cases = append(cases, randprog.New(seed, randprog.Options{Ops: random, Nodes: 12, Elements: 32}))
	}
	seen := map[program.Op]bool{}
	var file bytes.Buffer
	var lines [][]byte
	for _, c := range cases {
		for i := range c.Program.Nodes {
			seen[c.Program.Nodes[i].Op] = true
		}
		out, err := reference.Run(c.Program, c.Inputs)
		if err != nil {
			t.Fatal(err)
		}
		line, err := json.Marshal(recordedProgram{inJSON(t, wire.ToProgram(c.Program)), c.Program.Hash(),
			numerals(c.Inputs), numerals(out)})
		if err != nil {
			t.Fatal(err)
		}
		file.Write(append(line, '\n'))
		lines = append(lines, line)
	}
	for _, op := range all {
		if !seen[op] {
			t.Errorf("no program has %s: add seeds", op)
		}
	}
	write(t, "programs.jsonl", file.Bytes())
	got, err := os.ReadFile("programs.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	recorded := bytes.Split(bytes.TrimSpace(got), []byte("\n"))
	for i, line := range lines {
		if i >= len(recorded) || !same(t, recorded[i], line) {
			t.Fatalf("programs.jsonl, line %d is not what today's code says: go test ./sdk/protocol -update",
				i+1)
		}
	}
}

// same compares two recorded programs. The last digits of functions such as exp may differ between
// machines.
func same(t *testing.T, got, want []byte) bool {
	t.Helper()
	var g, w recordedProgram
	if err := errors.Join(json.Unmarshal(got, &g), json.Unmarshal(want, &w)); err != nil {
		t.Fatal(err)
	}
	return bytes.Equal(g.Program, w.Program) &&
		cmp.Equal(g, w, cmpopts.IgnoreFields(recordedProgram{}, "Program"),
			cmp.Comparer(func(x, y numeral) bool {
				a, b := float64(x), float64(y)
				return a == b || a != a && b != b || math.Abs(a-b) <= 1e-12*(1+math.Abs(a))
			}))
}

// inJSON returns m in the JSON form of protobuf, without spaces, which differ between builds.
func inJSON(t *testing.T, m proto.Message) json.RawMessage {
	t.Helper()
	text, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := json.Compact(&out, text); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func numerals(tensors map[string]reference.Tensor) map[string][]numeral {
	out := map[string][]numeral{}
	for name, x := range tensors {
		out[name] = []numeral{}
		for _, v := range x.Float64s() {
			out[name] = append(out[name], numeral(v))
		}
	}
	return out
}

// write writes a file if -update is set.
func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

var edges = []float64{0, math.Copysign(0, -1), 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 3, 7.25, 0x1p-126,
	-0x1p-130, 0x1p100, math.Inf(1), math.Inf(-1), math.NaN()}

// every returns one program whose outputs are all operations of a class that accept the operands.
func every(
	t *testing.T, class program.Class, inputs map[string]reference.Tensor, names ...string,
) randprog.Case {
	t.Helper()
	b := program.NewBuilder("edges/" + names[0])
	var args []program.Value
	for _, name := range names {
		args = append(args, b.Input(name, inputs[name].Type))
	}
	for _, info := range program.Ops() {
		if info.Class != class {
			continue
		}
		trial := program.NewBuilder("trial")
		var same []program.Value
		for _, name := range names {
			same = append(same, trial.Input(name, inputs[name].Type))
		}
		trial.Apply(info.Op, program.Attr{}, program.Type{}, same...)
		if trial.Err() == nil {
			b.Output(info.Name, b.Apply(info.Op, program.Attr{}, program.Type{}, args...))
		}
	}
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return randprog.Case{Program: p, Inputs: inputs}
}

func unaries(t *testing.T) randprog.Case {
	return every(t, program.ClassUnary,
		map[string]reference.Tensor{"x": reference.Floats(edges, len(edges))}, "x")
}

// binaries pairs every number with every other. It omits ldexp, whose exponents are integers; the
// random programs contain it.
func binaries(t *testing.T) randprog.Case {
	n := len(edges)
	c := every(t, program.ClassBinary,
		map[string]reference.Tensor{"column": reference.Floats(edges, n, 1),
			"row": reference.Floats(edges, 1, n)}, "column", "row")
	kept := slices.DeleteFunc(slices.Clone(c.Program.Outputs),
		func(o program.Output) bool { return o.Name == "ldexp" })
	var names []string
	for _, o := range kept {
		names = append(names, o.Name)
	}
	trimmed, err := transform.Trim(c.Program, names...)
	if err != nil {
		t.Fatal(err)
	}
	c.Program = trimmed
	return c
}

func integers(t *testing.T) randprog.Case {
	list := []int32{0, 1, -1, 5, 31, math.MaxInt32, math.MinInt32}
	n := len(list)
	return every(t, program.ClassBinary,
		map[string]reference.Tensor{"column": reference.Ints(list, n, 1),
			"row": reference.Ints([]int32{0, 1, 5, 31}, 1, 4)}, "column", "row")
}

// eigenvectors multiplies the factors of a matrix, so that their signs do not matter.
func eigenvectors(t *testing.T) randprog.Case {
	b := program.NewBuilder("edges/eigenvectors")
	x := b.Input("x", program.FloatType(3, 3))
	vectors := x.EighVectors()
	b.Output("again", vectors.Mul(x.EighValues().Reshape(1, 3)).MatMul(vectors.Transpose(1, 0)))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return randprog.Case{Program: p,
		Inputs: map[string]reference.Tensor{"x": reference.Floats([]float64{2, 9, 9, 1, -3, 9, 0.5, 0, 1},
			3, 3)}}
}
