package lora_test

import (
	"fmt"
	"testing"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/lora"
)

func Example() {
	s := architecture.Settings{Kind: architecture.KindLlama, Layers: 1, Width: 64, Heads: 4,
		KVHeads: 2,
		Hidden:  128, Vocab: 100}
	adapters := lora.Settings{Rank: 8, Alpha: 16, Targets: []string{"attn.qkv", "mlp.down"}}
	for _, a := range adapters.Of(s) {
		fmt.Println(a.A().Name, a.A().Dims, a.B().Name, a.B().Dims, a.Parts[0].Scale)
	}
	// Output:
	// layers.0.attn.qkv.lora_A [24 64] layers.0.attn.qkv.lora_B [128 8] 2
	// layers.0.mlp.down.lora_A [8 128] layers.0.mlp.down.lora_B [64 8] 2
}

// TestDraw checks that B starts at 0, A within its bound, and that another seed gives other
// numbers.
func TestDraw(t *testing.T) {
	a := lora.Adapter{Weight: "w", Parts: []lora.Part{{Rows: make([]int, 4), Rank: 2}}, In: 16}
	values, other := make([]float32, 32), make([]float32, 32)
	a.A().Draw(1, values)
	a.A().Draw(2, other)
	largest := float32(0)
	for i, v := range values {
		largest = max(largest, v, -v)
		if v == other[i] {
			t.Errorf("element %d is the same for another seed", i)
		}
	}
	if largest > 0.25 || largest < 0.2 {
		t.Errorf("the largest element is %v, want one just below 1/4", largest)
	}
	b := make([]float32, 8)
	b[3] = 1
	a.B().Draw(1, b)
	for _, v := range b {
		if v != 0 {
			t.Error("B does not start at 0")
		}
	}
}
