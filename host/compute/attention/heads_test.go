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

// TestHeads: parts are where they belong, points are turned by their angles, and Join is the adjoint of Split, which for a
// rotation is its inverse, but for rounding.
func TestHeads(t *testing.T) {
	t.Run("halves", func(t *testing.T) { testHeads(t, false) })
	t.Run("pairs", func(t *testing.T) { testHeads(t, true) })
}

func testHeads(t *testing.T, pairs bool) {
	h := attention.Heads{Batch: 2, Context: 70, Size: 6, Parts: []attention.Part{{4, true}, {2, true}, {2, false}}, Pairs: pairs}
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
	var parts [][]float32
	for _, p := range h.Parts {
		parts = append(parts, make([]float32, tokens*p.Heads*h.Size))
	}
	if err := h.Split(parts, matmul.Elements{Float32: x}, cos, sin, atOnce); err != nil {
		t.Fatal(err)
	}
	for token := range tokens {
		column := 0
		for i, p := range h.Parts {
			for j := range p.Heads * h.Size {
				got, want := float64(parts[i][token*p.Heads*h.Size+j]), float64(x[token*columns+column])
				if p.Turned {
					point, second, away := j%(h.Size/2), j%h.Size >= h.Size/2, h.Size/2 // of the other coordinate
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
	// In bfloat16 what is joined gives the parts that it would give as float32.
	short, whole := make([]uint16, len(x)), make([]float32, len(x))
	loops.ToBFloat16(short, x)
	loops.FromBFloat16(whole, short)
	var wide, narrow [][]float32
	for _, p := range parts {
		wide, narrow = append(wide, make([]float32, len(p))), append(narrow, make([]float32, len(p)))
	}
	if err := errors.Join(h.Split(wide, matmul.Elements{Float32: whole}, cos, sin, atOnce), h.Split(narrow, matmul.Elements{BFloat16: short}, cos, sin, atOnce)); err != nil {
		t.Fatal(err)
	}
	for i := range wide {
		if !slices.Equal(wide[i], narrow[i]) {
			t.Errorf("part %d has other numbers in bfloat16", i)
		}
	}
	back := make([]float32, len(x))
	if err := h.Join(back, parts, cos, sin, atOnce); err != nil {
		t.Fatal(err)
	}
	for i := range x {
		if !(math.Abs(float64(back[i]-x[i])) < 1e-5) {
			t.Fatalf("element %d: %v comes back as %v", i, x[i], back[i])
		}
	}
	again := slices.Clone(back)
	if err := h.Join(again, parts, cos, sin, inTurn); err != nil || !slices.Equal(again, back) {
		t.Errorf("in turn: %v, other bits", err)
	}
	for name, err := range map[string]error{
		"parts":   h.Split(parts[1:], matmul.Elements{Float32: x}, cos, sin, inTurn),
		"matrix":  h.Split(parts, matmul.Elements{Float32: x[1:]}, cos, sin, inTurn),
		"cosines": h.Split(parts, matmul.Elements{Float32: x}, cos[1:], sin, inTurn),
		"part":    h.Split([][]float32{parts[0], parts[0], parts[2]}, matmul.Elements{Float32: x}, cos, sin, inTurn),
	} {
		if err == nil {
			t.Errorf("wrong %s passed", name)
		}
	}
}
