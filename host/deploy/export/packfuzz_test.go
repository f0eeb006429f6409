package export

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/cage-qat/cage/host/model/gguf"
)

// FuzzBlocks: a block of any codes and scale is refused, or read back as code times scale.
func FuzzBlocks(f *testing.F) {
	f.Add([]byte("0123456789abcdef0123456789abcdef"), uint32(0x3f800000))
	f.Fuzz(func(t *testing.T, data []byte, bits uint32) {
		if len(data) < 32 {
			return
		}
		scale := math.Float32frombits(bits)
		wide, narrow, unsigned := make([]int32, 32), make([]int32, 32), make([]int32, 32)
		for i := range 32 {
			wide[i], unsigned[i] = int32(int8(data[i])), int32(data[i]&15)
			narrow[i] = unsigned[i] - 8
		}
		check := func(typ gguf.Type, block []byte, err error, want func(i int) float32) {
			if err != nil {
				return
			}
			got, err := gguf.Decode(typ, block)
			if err != nil || len(got) != 32 {
				t.Fatalf("%s: %d numbers, error %v", typ, len(got), err)
			}
			for i, v := range got {
				if v != want(i) {
					t.Fatalf("%s: %v at %d, want %v", typ, v, i, want(i))
				}
			}
		}
		block, err := packQ8_0(nil, wide, scale)
		check(gguf.Q8_0, block, err, func(i int) float32 { return float32(wide[i]) * scale })
		block, err = packQ4_0(nil, narrow, scale)
		check(gguf.Q4_0, block, err, func(i int) float32 { return float32(narrow[i]) * scale })
		minimum := -8 * scale
		block, err = packQ4_1(nil, unsigned, scale, minimum)
		check(gguf.Q4_1, block, err, func(i int) float32 { return float32(float32(unsigned[i])*scale) + minimum })
		block, err = packMXFP4(nil, unsigned, scale)
		check(gguf.MXFP4, block, err, func(i int) float32 {
			m := []float32{0, 0.5, 1, 1.5, 2, 3, 4, 6}[unsigned[i]%8]
			if unsigned[i] > 7 {
				m = -m
			}
			return m * scale
		})
	})
}

// FuzzWords: packed codes are found again where the format says.
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
		words, err := packWords(codes, n, bits)
		if err != nil {
			t.Fatal(err)
		}
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
