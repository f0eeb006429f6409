package decode_test

import (
	"fmt"

	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/decode"
)

// Two sequences are read token by token, from the first token on. The model is not trained.
func Example() {
	m, err := model.New(architecture.Settings{Kind: architecture.KindLlama, Layers: 2, Width: 8,
		Heads: 2, Vocab: 10, Context: 4}, model.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	weights := map[string][]float32{}
	for _, p := range m.Params() {
		weights[p.Name] = p.Init(1)
	}
	const positions = 4
	n, err := decode.New(m.(model.Language), weights, decode.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	var caches [][]float32
	for range 2 * 2 { // keys and values of each layer, [sequences, heads, positions, size]
		caches = append(caches, make([]float32, 2*2*positions*4))
	}
	for at, tokens := range [][]int32{{3, 1}, {4, 5}, {1, 9}} {
		logits, err := n.Next(tokens,
			decode.Positions{Length: positions, Start: at, First: []int32{0, 0}}, caches, nil)
		fmt.Println(len(logits), err)
	}
	// Output:
	// 20 <nil>
	// 20 <nil>
	// 20 <nil>
}
