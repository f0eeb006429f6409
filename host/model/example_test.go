package model_test

import (
	"fmt"

	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
)

func ExampleLookupPreset() {
	preset, _ := architecture.LookupPreset(architecture.KindLlama, "30M")
	llama, err := model.New(preset.Settings(), model.Options{})
	if err != nil {
		panic(err)
	}
	fmt.Println(architecture.NonEmbedding(llama.Params()), "parameters without embeddings")
	for _, p := range llama.Params()[:4] {
		fmt.Println(p.Name, p.Dims, p.Role, "quantized:", p.Quantized)
	}
	for _, site := range llama.ActivationSites(64, 512)[2:4] {
		fmt.Println(site.Name, site.Tokens, site.Width, site.Feeds)
	}
	// Output:
	// 30482560 parameters without embeddings
	// embedding [32000 640] embedding quantized: false
	// layers.0.attn_norm [640] norm quantized: false
	// layers.0.attn.qkv [1920 640] matrix quantized: true
	// layers.0.attn.out [640 640] matrix quantized: true
	// layers.0.mlp.input 32768 640 [layers.0.mlp.w1 layers.0.mlp.w2]
	// layers.0.mlp.down.input 32768 1792 [layers.0.mlp.down]
}
