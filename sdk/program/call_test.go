package program_test

import (
	"strings"
	"testing"

	"github.com/cage-qat/cage/sdk/program"
)

// calling returns a program with a call of the program x → x·factor.
func calling(t *testing.T, factor float64) *program.Program {
	t.Helper()
	b := program.NewBuilder("meaning")
	b.Output("y", b.Input("x", program.FloatType(2)).Scale(factor))
	meaning, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	b = program.NewBuilder("caller")
	c := &program.Call{Name: "scale", Meaning: meaning}
	b.Output("y", b.Call(c, b.Input("x", program.FloatType(2)))[0])
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestCallText(t *testing.T) {
	p := calling(t, 2)
	if want := "%1 = scale %0 : float[2]\n"; !strings.Contains(p.String(), want) {
		t.Errorf("got\n%swant %s", p, want)
	}
	if p.Hash() != calling(t, 2).Hash() || p.Hash() == calling(t, 3).Hash() {
		t.Error("the hash of a program is not that of its meaning")
	}
}

func TestInvalidCalls(t *testing.T) {
	pair := "takes [{x float[2]}], got [float[2] float[2]]"
	for want, change := range map[string]func(n *program.Node){
		"has no program to call":   func(n *program.Node) { n.Attr.Call = nil },
		pair:                       func(n *program.Node) { n.Args = append(n.Args, 0) },
		"has no output 1":          func(n *program.Node) { n.Attr.Output = 1 },
		"states the type float[3]": func(n *program.Node) { n.Type = program.FloatType(3) },
		"takes no program to call": func(n *program.Node) { n.Op = program.OpNeg },
	} {
		p := calling(t, 2)
		change(&p.Nodes[0])
		if err := p.Validate(program.Limits{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	b := program.NewBuilder("wrong")
	b.Call(calling(t, 2).Nodes[0].Attr.Call, b.Input("x", program.FloatType(3)))
	want := "takes [{x float[2]}], got [float[3]]"
	if err := b.Err(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want an error about the operand", err)
	}
}
