package arrange

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"testing"
)

// TestBatchesGolden: the batches of a seed are the same in every version of the program.
func TestBatchesGolden(t *testing.T) {
	config := SamplerConfig{Context: 16, Batch: 4, Seed: 2357}
	one, two := writeTokens(t, wideInfo, counting(1000, 1<<20)), writeTokens(t, wideInfo, counting(3000, 7919))
	mixture, err := NewMixture([]Weighted{{one, 1}, {two, 2.5}}, config)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		from interface {
			BatchLen() int
			At(index int64, dst []int32) error
		}
		want string
	}{
		{"windows", newSampler(t, one, config), "0961d69e94b923c76697384928db999424932ba4412aae4afaa326450046ac46"},
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
