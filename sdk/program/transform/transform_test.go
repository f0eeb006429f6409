package transform_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// twoOutputs returns a program with the outputs y = (−x)² and z = |x|.
func twoOutputs(t *testing.T) *program.Program {
	t.Helper()
	b := program.NewBuilder("two")
	x := b.Input("x", program.FloatType(2))
	b.Output("y", x.Neg().Square())
	b.Output("z", x.Abs())
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestInterpret(t *testing.T) {
	var ids []program.ID
	depths := transform.Interpret(twoOutputs(t), []int{1},
		func(id program.ID, _ *program.Node, args []int) int {
			ids = append(ids, id)
			return 1 + slices.Max(args)
		})
	if want := []int{1, 2, 3, 2}; !slices.Equal(depths, want) {
		t.Errorf("depths %v, want %v", depths, want)
	}
	if want := []program.ID{1, 2, 3}; !slices.Equal(ids, want) {
		t.Errorf("nodes %v, want %v", ids, want)
	}
}

func TestNeeds(t *testing.T) {
	p := twoOutputs(t)
	if got, want := transform.Needs(p, p.Outputs[1:]), []bool{true, false, false, true}; !slices.Equal(
		got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestExtract(t *testing.T) {
	p := twoOutputs(t)
	square, err := transform.Extract(p, "square", []program.Output{{Name: "v", Value: 1}},
		p.Outputs[:1])
	if err != nil {
		t.Fatal(err)
	}
	want := "program square(%0 v: float[2]) {\n  %1 = mul %0 %0 : float[2]\n  return y=%1\n}\n"
	if square.String() != want {
		t.Errorf("got\n%swant\n%s", square, want)
	}
	if _, err := transform.Extract(p, "lost", nil, p.Outputs); err == nil ||
		!strings.Contains(err.Error(), `output "y": is absent`) {
		t.Errorf("got %v, want an error that says that y is absent", err)
	}
}
