package export

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/model/gguf"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/spec"
)

// FuzzBlocks checks that a block of any codes and scale is refused, or reads back exactly as the
// numbers times the scale.
func FuzzBlocks(f *testing.F) {
	f.Add([]byte("0123456789abcdef0123456789abcdef"), uint32(0x3f800000))
	f.Fuzz(func(t *testing.T, data []byte, bits uint32) {
		if len(data) < 32 {
			return
		}
		scale := math.Float32frombits(bits)
		for _, c := range []struct {
			typ     gguf.Type
			numbers spec.Grid
		}{{gguf.Q8_0, sdk.Integers(-128, 127, 32)}, {gguf.Q4_0, sdk.Integers(-8, 7, 32)},
			{gguf.Q4_1, sdk.OddIntegers(15, 32)}, {gguf.Q5_0, sdk.Integers(-16, 15, 32)},
			{gguf.Q1_0, sdk.OddIntegers(1, 128)}, {gguf.Q4_1, sdk.Affine(15, 32)},
			{gguf.Q5_1, sdk.Affine(31, 32)},
			{gguf.TQ1_0, sdk.Integers(-1, 1, 256)}, {gguf.TQ2_0, sdk.Integers(-1, 1, 256)},
			{gguf.Q2_0, sdk.Integers(-2, 1, 64)},
			{gguf.Q2_0, sdk.Integers(-1, 2, 64)}, {gguf.MXFP4, sdk.E2M1(32)}} {
			typ, numbers := c.typ, c.numbers
			size, _ := typ.Block()
			g := &Grid{Rows: 1, Columns: size, Group: size, Numbers: numbers, Scales: []float32{scale}}
			minimum := float32(0)
			if numbers.PerGroup() > 1 {
				minimum = -2 * scale
				g.Minima = []float32{minimum}
			}
			codes := numbers.Codes()
			for i := range size {
				g.Codes = append(g.Codes, codes[(int(data[i%len(data)])+i/len(data))%len(codes)])
			}
			block, err := ggufBlocks(g, typ, false)
			if err != nil {
				if _, err := ggufBlocks(g, typ, true); err == nil && isHalf(scale, false) && typ != gguf.Q4_1 {
					t.Fatalf("%s: the half float %v was refused", typ, scale)
				}
				continue
			}
			got, err := gguf.Decode(typ, block)
			if err != nil || len(got) != size {
				t.Fatalf("%s: %d numbers, error %v", typ, len(got), err)
			}
			for i, v := range got {
				if want := float32(numbers.Number(g.Codes[i])*scale) + minimum; v != want {
					t.Fatalf("%s: %v at %d, want %v", typ, v, i, want)
				}
			}
		}
	})
}

// TestRoundQ8 checks that blocks are rounded to within half a step, and that rounding again changes
// nothing.
func TestRoundQ8(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	values := make([]float32, 32*50)
	for i := range values[32:] { // the first block is of zeros
		values[32+i] = float32(r.NormFloat64() * math.Exp(5*r.Float64()))
	}
	got, err := gguf.Decode(gguf.Q8_0, roundQ8(values))
	if err != nil {
		t.Fatal(err)
	}
	for i := range values {
		largest := float32(0)
		for _, v := range values[i/32*32:][:32] {
			largest = max(largest, v, -v)
		}
		// The scale itself is rounded to a half float, by at most 2^-11.
		if d := math.Abs(float64(got[i] - values[i])); d > float64(largest)*(0.501/127+0x1p-11) {
			t.Errorf("element %d: %v becomes %v", i, values[i], got[i])
		}
	}
	again, err := gguf.Decode(gguf.Q8_0, roundQ8(got))
	if err != nil || !slices.Equal(again, got) {
		t.Errorf("what is rounded changes when it is rounded again, %v", err)
	}
}

// FuzzWords checks that packed codes are at the bits that the format defines.
func FuzzWords(f *testing.F) {
	f.Add([]byte("words of four or eight bits"), uint8(5), true)
	f.Fuzz(func(t *testing.T, data []byte, columns uint8, four bool) {
		n := int(columns)
		if n == 0 || len(data) < n {
			return
		}
		bits := 8
		codes := make([]int32, len(data)/n*n)
		for i := range codes {
			codes[i] = int32(int8(data[i]))
		}
		if four {
			bits = 4
			for i := range codes {
				codes[i] = codes[i]&15 - 8
			}
		}
		words := packWords(codes, n, bits, -1<<(bits-1))
		var stream []byte
		for _, w := range words {
			stream = binary.LittleEndian.AppendUint32(stream, uint32(w))
		}
		rowBytes := len(stream) / (len(codes) / n)
		for i, want := range codes {
			row, at := stream[i/n*rowBytes:], i%n*bits
			got := int32(row[at/8]>>(at%8)) & (1<<bits - 1)
			if got -= 1 << (bits - 1); got != want {
				t.Fatalf("code %d is %d, want %d", i, got, want)
			}
		}
	})
}
