package matmul_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cage-qat/cage/host/compute/matmul"
)

// TestPanels multiplies parts of strided operands panel by panel, and compares with float64.
// Elements are multiples of 1/2: sums are exact, and some elements are rounded to bfloat16.
func TestPanels(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, tier := range matmul.Tiers() {
		for _, a := range []matmul.Arithmetic{matmul.BFloat16, matmul.Float32} {
			for _, across := range []bool{false, true} {
				for _, size := range [][3]int{{1, 1, 1}, {5, 40, 3}, {13, 33, 64}, {70, 9, 300}} {
					t.Run(fmt.Sprint(tier.Name(), a, across, size), func(t *testing.T) {
						testPanels(t, r, tier, a, across, size[0], size[1], size[2])
					})
				}
			}
		}
	}
	if _, err := matmul.NewPanels(matmul.Tiers()[0], matmul.Int8); err == nil {
		t.Error("panels of integers passed")
	}
}

func testPanels(
	t *testing.T, r *rand.Rand, tier *matmul.Tier, a matmul.Arithmetic, across bool, m, n, k int,
) {
	p, err := matmul.NewPanels(tier, a)
	if err != nil {
		t.Fatal(err)
	}
	// The operands are parts of larger ones: two more rows and elements before, one more after.
	axes := func(rows int) (cross, contracted matmul.Axis) {
		if across {
			return matmul.Axis{Size: rows + 3, Stride: 1}, matmul.Axis{Size: k + 3, Stride: rows + 5}
		}
		return matmul.Axis{Size: rows + 3, Stride: k + 4}, matmul.Axis{Size: k + 3, Stride: 1}
	}
	operand := func(rows int) []float32 {
		x := make([]float32, (rows+5)*(k+5))
		for i := range x {
			x[i] = float32(r.IntN(1001)-500) / 2
		}
		return x
	}
	at := func(x []float32, rows, row, i int) float64 {
		cross, contracted := axes(rows)
		v := x[(row+2)*cross.Stride+(i+2)*contracted.Stride]
		if a == matmul.BFloat16 {
			v = math.Float32frombits((math.Float32bits(v) + 0x7fff + math.Float32bits(v)>>16&1) &^ 0xffff)
		}
		return float64(v)
	}
	left, right := operand(m), operand(n)
	packLeft, err := p.Left(axes(m))
	if err != nil {
		t.Fatal(err)
	}
	packRight, err := p.Right(axes(n))
	if err != nil {
		t.Fatal(err)
	}
	packedLeft, packedRight := make([]float32, packLeft.Size(m, k)),
		make([]float32, packRight.Size(n, k))
	packLeft.Pack(packedLeft, matmul.Elements{Float32: left}, 2, m, 2, k)
	packRight.Pack(packedRight, matmul.Elements{Float32: right}, 2, n, 2, k)
	rows, columns, words := p.Rows(), p.Columns(), p.Words(k)
	multiplier := p.Multiplier()
	panels := (m + rows - 1) / rows
	tiles := make([]float32, panels*rows*columns)
	for j := 0; j < n; j += columns {
		multiplier.Multiply(panels, words, packedLeft, rows*words, packedRight[j*words:], tiles, columns,
			false)
		multiplier.Multiply(panels, words, packedLeft, rows*words, packedRight[j*words:], tiles, columns,
			true)
		for x := range panels * rows {
			for y := range columns {
				want := 0.0
				for c := 0; c < k && x < m && j+y < n; c++ {
					want += 2 * at(left, m, x, c) * at(right, n, j+y, c)
				}
				if got := tiles[x*columns+y]; float64(got) != want {
					t.Fatalf("element %d, %d is %v, want %v", x, j+y, got, want)
				}
			}
		}
	}
}
