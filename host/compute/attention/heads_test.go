package attention_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/compute/attention"
	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/host/compute/matmul"
)

// TestHeads checks that Split copies each part to the right place and rotates it by the right
// angles, and that Join, the adjoint of Split, inverts it up to rounding.
func TestHeads(t *testing.T) {
	t.Run("halves", func(t *testing.T) { testHeads(t, false) })
	t.Run("pairs", func(t *testing.T) { testHeads(t, true) })
}

func testHeads(t *testing.T, pairs bool) {
	h := attention.Heads{Batch: 2, Context: 70, Size: 6,
		Parts: []attention.Part{{4, true}, {2, true}, {2, false}}, Pairs: pairs}
	rng := rand.New(rand.NewPCG(1, 2))
	tokens, columns := h.Batch*h.Context, 8*h.Size
	x := random(rng, tokens*columns)
	var cos, sin []float32
	for i := range h.Context {
		for j := range h.Size / 2 {
			angle := float64(i) / float64(1+j)
			cos, sin = append(cos, float32(math.Cos(angle))), append(sin, float32(math.Sin(angle)))
		}
	}
	floats := func() (list [][]float32, elements []matmul.Elements) {
		for _, p := range h.Parts {
			x := make([]float32, tokens*p.Heads*h.Size)
			list, elements = append(list, x), append(elements, matmul.Elements{Float32: x})
		}
		return list, elements
	}
	parts, of := floats()
	whole := matmul.Elements{Float32: x}
	if err := h.Split(of, whole, cos, sin, atOnce); err != nil {
		t.Fatal(err)
	}
	for token := range tokens {
		column := 0
		for i, p := range h.Parts {
			for j := range p.Heads * h.Size {
				got, want := float64(parts[i][token*p.Heads*h.Size+j]), float64(x[token*columns+column])
				if p.Rotated {
					point, second, away := j%(h.Size/2), j%h.Size >= h.Size/2, h.Size/2 // of the other element
					if pairs {
						point, second, away = j%h.Size/2, j%2 == 1, 1
					}
					s, c := math.Sincos(float64(token%h.Context) / float64(1+point))
					if second {
						want = want*c + float64(x[token*columns+column-away])*s
					} else {
						want = want*c - float64(x[token*columns+column+away])*s
					}
				}
				if !(math.Abs(got-want) < 1e-5) {
					t.Fatalf("token %d, part %d, element %d: %v, want %v", token, i, j, got, want)
				}
				column++
			}
		}
	}
	back := make([]float32, len(x))
	if err := h.Join(matmul.Elements{Float32: back}, of, cos, sin, atOnce); err != nil {
		t.Fatal(err)
	}
	for i := range x {
		if !(math.Abs(float64(back[i]-x[i])) < 1e-5) {
			t.Fatalf("element %d: %v comes back as %v", i, x[i], back[i])
		}
	}
	again := slices.Clone(back)
	if err := h.Join(matmul.Elements{Float32: again}, of, cos, sin, inTurn); err != nil ||
		!slices.Equal(again, back) {
		t.Errorf("in turn: %v, other bits", err)
	}

	// Inputs in bfloat16 give the same results as in float32, and results in bfloat16 are the rounded
	// float32 results.
	short := make([]uint16, len(x))
	loops.ToBFloat16(short, x)
	wide := make([]float32, len(x))
	loops.FromBFloat16(wide, short)
	want, wantOf := floats()
	got := make([]matmul.Elements, len(want))
	for i := range got {
		got[i] = matmul.Elements{BFloat16: make([]uint16, len(want[i]))}
	}
	joined, wantJoined := make([]uint16, len(x)), make([]float32, len(x))
	if err := errors.Join(h.Split(wantOf, matmul.Elements{Float32: wide}, cos, sin, atOnce),
		h.Split(got, matmul.Elements{BFloat16: short}, cos, sin, atOnce),
		h.Join(matmul.Elements{BFloat16: joined}, of, cos, sin, atOnce),
		h.Join(matmul.Elements{Float32: wantJoined}, of, cos, sin, atOnce)); err != nil {
		t.Fatal(err)
	}
	rounded := make([]uint16, len(x))
	for i := range want {
		if loops.ToBFloat16(rounded[:len(want[i])], want[i]); !slices.Equal(got[i].BFloat16,
			rounded[:len(want[i])]) {
			t.Errorf("part %d has other numbers in bfloat16", i)
		}
	}
	if loops.ToBFloat16(rounded, wantJoined); !slices.Equal(joined, rounded) {
		t.Error("what is joined has other numbers in bfloat16")
	}

	for name, err := range map[string]error{
		"parts":   h.Split(of[1:], whole, cos, sin, inTurn),
		"matrix":  h.Split(of, whole.From(1), cos, sin, inTurn),
		"cosines": h.Split(of, whole, cos[1:], sin, inTurn),
		"part":    h.Split([]matmul.Elements{of[0], of[0], of[2]}, whole, cos, sin, inTurn),
	} {
		if err == nil {
			t.Errorf("wrong %s passed", name)
		}
	}
}
