package huggingface

import (
	"encoding/binary"
	"encoding/json/v2"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/safetensors"
)

// TestWiden checks the conversion of all 16-bit numbers to float32.
func TestWiden(t *testing.T) {
	for bits := range 1 << 16 {
		data := binary.LittleEndian.AppendUint16(nil, uint16(bits))
		if got, want := widen(safetensors.F16, data), number(bits, 5, 10); !same(got, want) {
			t.Fatalf("half %#04x is read as %v, want %v", bits, got, want)
		}
		if got, want := widen(safetensors.BF16, data), number(bits, 8, 7); !same(got, want) {
			t.Fatalf("bfloat16 %#04x is read as %v, want %v", bits, got, want)
		}
	}
}

func same(a float32, b float64) bool {
	return float64(a) == b && math.Signbit(float64(a)) == math.Signbit(b) || a != a && b != b
}

// number returns the value of an IEEE 754 number with the given sizes of exponent and mantissa.
func number(bits, exponentBits, mantissaBits int) float64 {
	most := 1<<exponentBits - 1
	bias := most >> 1
	exponent, mantissa := bits>>mantissaBits&most, bits&(1<<mantissaBits-1)
	sign := 1 - 2*float64(bits>>15)
	switch {
	case exponent == most && mantissa == 0:
		return math.Inf(int(sign))
	case exponent == most:
		return math.NaN()
	case exponent == 0:
		return sign * math.Ldexp(float64(mantissa), 1-bias-mantissaBits)
	}
	return sign * math.Ldexp(float64(1<<mantissaBits+mantissa), exponent-bias-mantissaBits)
}

// TestPermutation checks that rows of heads are permuted as in the golden file.
func TestPermutation(t *testing.T) {
	text, err := os.ReadFile("testdata/permutation.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Cases []struct {
			HeadSize    int         `json:"head_size"`
			Half        [][]float32 `json:"half_split_weight"`
			Interleaved [][]float32 `json:"interleaved_weight"`
			ComesFrom   []int       `json:"interleaved_row_comes_from"`
		} `json:"cases"`
	}
	if err := json.Unmarshal(text, &golden); err != nil || len(golden.Cases) == 0 {
		t.Fatalf("%d cases, error %v", len(golden.Cases), err)
	}
	for _, c := range golden.Cases {
		rows := make([]int, len(c.Half))
		for i := range rows {
			rows[i] = i
		}
		for i, row := range architecture.Reorder(rows, c.HeadSize, architecture.Interleaved,
			architecture.HalfSplit) {
			if !slices.Equal(c.Half[i], c.Interleaved[row]) || c.ComesFrom[row] != i {
				t.Errorf("row %d comes from %d, want %d", row, i, c.ComesFrom[row])
			}
		}
	}
}
