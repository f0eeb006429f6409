package triton_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/pass/factor"
	"github.com/cage-qat/cage/host/compute/triton"
	"github.com/cage-qat/cage/internal/testing/testkernel"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// TestBlockProduct: what the kernel computes from codes and scales is the product of the matrices that they stand for.
func TestBlockProduct(t *testing.T) {
	for _, p := range []triton.BlockProduct{
		{128, 16, 64, 32, false}, // one tile
		{128, 16, 64, 16, true},
		{256, 48, 192, 32, true},
		{256, 48, 192, 16, false},
		{128, 256, 256, 32, true}, // the largest tiles
	} {
		for _, stored := range []triton.Storage{triton.Float32, triton.BFloat16} {
			t.Run(fmt.Sprint(p, stored), func(t *testing.T) {
				if p.Inner > 192 {
					testlevel.Long(t, "kernels are interpreted")
				}
				checkProduct(t, p, stored)
			})
		}
	}
}

func checkProduct(t *testing.T, p triton.BlockProduct, stored triton.Storage) {
	t.Helper()
	k, err := p.Kernel(stored)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(5, 6))
	x, y := randomBlocks(rng, p.Rows, p), randomBlocks(rng, p.Columns, p)
	notANumber := p.Columns - 1 // a row of y
	y.scales[notANumber*p.Inner/p.Block] = map[int]int8{32: -1, 16: 127}[p.Block]
	out := testkernel.Tensor{Float32: make([]float32, p.Rows*p.Columns)}
	if stored == triton.BFloat16 {
		out = testkernel.Tensor{BFloat16: make([]uint16, p.Rows*p.Columns)}
	}
	tensors := []testkernel.Tensor{{Int8: x.packed}, {Int8: x.scales}, {Float32: x.overall}, {Int8: y.packed}, {Int8: y.scales}, {Float32: y.overall}}
	before := make([]float32, p.Rows*p.Columns)
	if p.Sum {
		for i := range before {
			before[i] = float32(100 * rng.NormFloat64())
		}
		tensors = append(tensors, testkernel.Tensor{Float32: before})
	}
	if err := testkernel.Run(k.Text, k.Grid, append(tensors, out)); err != nil {
		t.Fatalf("%v\n%s", err, k.Text)
	}
	a, b := x.values(t, p), y.values(t, p)
	for i := range p.Rows {
		for j := range p.Columns {
			want := float64(before[i*p.Columns+j])
			size := math.Abs(want) // of all terms
			for n := range p.Inner {
				term := a[i*p.Inner+n] * b[j*p.Inner+n]
				want, size = want+term, size+math.Abs(term)
			}
			at, tolerance := i*p.Columns+j, 1e-6*size
			var got float64
			if stored == triton.BFloat16 {
				got = float64(math.Float32frombits(uint32(out.BFloat16[at]) << 16))
				tolerance += math.Abs(want) / 256
			} else {
				got = float64(out.Float32[at])
			}
			if j == notANumber {
				if !math.IsNaN(got) {
					t.Fatalf("[%d, %d] is %g, and one of the scales is NaN", i, j, got)
				}
			} else if !(math.Abs(got-want) <= tolerance) {
				t.Fatalf("[%d, %d] is %g, want %g", i, j, got, want)
			}
		}
	}
}

// blocks are the codes and scales of a matrix.
type blocks struct {
	packed, scales []int8
	overall        []float32
}

func randomBlocks(rng *rand.Rand, rows int, p triton.BlockProduct) (b blocks) {
	for range rows * p.Inner / 2 {
		b.packed = append(b.packed, int8(rng.IntN(256)-128))
	}
	for range rows * p.Inner / p.Block {
		scale := int8(124 + rng.IntN(8)) // 2⁻³ to 2⁴, some of them above 127
		if p.Block == 16 {
			scale = int8(rng.IntN(80)) // to 4, some of them below 2⁻⁶
		}
		b.scales = append(b.scales, scale)
	}
	for range rows {
		b.overall = append(b.overall, 0.5+rng.Float32())
	}
	return b
}

// values are the matrix, as package factor reads it.
func (b blocks) values(t *testing.T, p triton.BlockProduct) []float64 {
	t.Helper()
	rows := len(b.overall)
	floats := func(bytes []int8) reference.Tensor {
		x := reference.Tensor{Type: program.FloatType(rows, len(bytes)/rows)}
		for _, n := range bytes {
			x.Floats = append(x.Floats, float64(n))
		}
		return x
	}
	out, err := reference.Run32(factor.Dequantize(rows, p.Inner, p.Block, "x"), map[string]reference.Tensor{
		factor.OutputPacked: floats(b.packed), factor.OutputScales: floats(b.scales)})
	if err != nil {
		t.Fatal(err)
	}
	x := out["x"].Floats
	for i := range x {
		x[i] *= float64(b.overall[i/p.Inner])
	}
	return x
}

// TestRefusedBlockProduct: sizes that are no whole tiles, and blocks of another.
func TestRefusedBlockProduct(t *testing.T) {
	for p, want := range map[triton.BlockProduct]string{
		{64, 16, 64, 32, false}: "whole tiles", {128, 24, 64, 32, false}: "whole tiles", {128, 16, 96, 32, false}: "whole tiles",
		{128, 16, 64, 8, false}: "blocks of 8: want 16 or 32",
	} {
		_, err := p.Kernel(triton.BFloat16)
		if refusal := (*triton.Refusal)(nil); !errors.As(err, &refusal) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", p, err)
		}
	}
}
