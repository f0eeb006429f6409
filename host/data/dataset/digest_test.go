package dataset

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"testing"
)

// TestBatchesGolden checks that a seed gives the same batches in every version of the program.
func TestBatchesGolden(t *testing.T) {
	config := WindowsConfig{Context: 16, Batch: 4, Seed: 2357}
	one, two := writeTokens(t, wideInfo, counting(1000, 1<<20)),
		writeTokens(t, wideInfo, counting(3000, 7919))
	mixture := newMixture(t, []Weighted{{one, 1}, {two, 2.5}}, config)
	for _, c := range []struct {
		name string
		from interface {
			BatchLen() int
			At(index int64, dst []int32) error
		}
		want string
	}{
		{"windows", newWindows(t, one, config),
			"0961d69e94b923c76697384928db999424932ba4412aae4afaa326450046ac46"},
		{"mixture", mixture, "68a0a8ef2f89aa5201326bcf27362174a4822eda62e3cc5650bcd5d0b7d0b041"},
	} {
		sum := sha256.New()
		dst := make([]int32, c.from.BatchLen())
		for i := range int64(200) {
			if err := c.from.At(i, dst); err != nil {
				t.Fatal(err)
			}
			if err := binary.Write(sum, binary.LittleEndian, dst); err != nil {
				t.Fatal(err)
			}
		}
		if got := hex.EncodeToString(sum.Sum(nil)); got != c.want {
			t.Errorf("%s: the batches have the hash %s, want %s", c.name, got, c.want)
		}
	}
}

// TestRowsGolden checks that a seed gives the same rows in every version of the program.
func TestRowsGolden(t *testing.T) {
	var sizes []int
	for i := range 200 {
		sizes = append(sizes, 2+(i*i*7+i*13)%60)
	}
	f := lengths(t, sizes...)
	for packing, want := range map[Packing]string{
		FirstFit:  "10e83991d73611dc23f8437ef94b01573e033ea1999aa39d8419ec25af14d36e",
		NoPacking: "b4c9b39412c3f712b45979d4cd4184932127f428dd6aae0dc0d8b47a7e5a41e6",
	} {
		s := newRows(t, f, RowsConfig{Length: 48, Batch: 4, Epochs: 3, Packing: packing, Seed: 2357})
		sum := sha256.New()
		for step := range s.Steps() {
			for _, row := range read(t, s, step) {
				// The hashes are of rows with the position of each token in its document.
				n := len(row.Tokens) - 1
				positions := make([]int32, n)
				for i := 1; i < n; i++ {
					if s := row.Segments[i]; s != Padding && s == row.Segments[i-1] {
						positions[i] = positions[i-1] + 1
					}
				}
				for _, part := range []any{row.Tokens[:n], positions, row.Segments[:n],
					targetWeights(row)} {
					if err := binary.Write(sum, binary.LittleEndian, part); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		if got := hex.EncodeToString(sum.Sum(nil)); got != want {
			t.Errorf("%s: the batches have the hash %s, want %s", packing, got, want)
		}
	}
}

// BenchmarkRows reads batches of conversations of 20 to 519 tokens.
func BenchmarkRows(b *testing.B) {
	var sizes []int
	for i := range 20000 {
		sizes = append(sizes, 20+(i*i*7+i*13)%500)
	}
	s := newRows(b, lengths(b, sizes...),
		RowsConfig{Length: 2048, Batch: 16, Epochs: 1, Packing: FirstFit, Seed: 1})
	batch := emptyRows(16, 2048)
	b.SetBytes(16 * 2048 * 4)
	for i := int64(0); b.Loop(); i++ {
		if _, err := s.At(i%s.Steps(), 0, batch); err != nil {
			b.Fatal(err)
		}
	}
}
