package program

import (
	"testing"
)

func TestSketch(t *testing.T) {
	b := NewBuilder("q")
	x := b.Input("x", FloatType(4, 64))
	z := x.Hadamard(64)
	s := z.Square().MeanRow().Sqrt().Scale(2.37 / 7)
	r := z.Div(s)
	q := r.Round().Clip(-8, 7)
	m := r.Sub(q).Abs().Le(b.Const(0.5))
	b.Output("value", q.Mul(s).Hadamard(64))
	b.Output("surrogate", m.Select(z, b.Const(0)).Hadamard(64))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	t.Log(p)
}
