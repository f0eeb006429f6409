package attention

import (
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/compute/loops"
)

// TestCapRoundsProducts checks that products are rounded before sums, also where the compiler can
// fuse both to one instruction, as with GOAMD64=v3 and on ARM64.
func TestCapRoundsProducts(t *testing.T) {
	const n, mean = 100, float32(0.1)
	p := &Plan{limit: 2, width: n}
	x, d, want := make([]float32, n), make([]float32, n), make([]float32, n)
	for i := range x {
		x[i], d[i] = float32(i)/30, float32(i)/7
	}
	capped := slices.Clone(x)
	loops.Softcap(capped, p.limit)
	for i, x := range capped {
		share := x / 2
		square := float32(share * share)
		product := float32((d[i] - mean) * (1 - square))
		want[i] = mean + product
	}
	if p.capBackward(x, d, []float32{mean}); !slices.Equal(d, want) {
		t.Errorf("got %v, want %v", d, want)
	}
}
