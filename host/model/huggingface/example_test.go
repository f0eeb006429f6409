package huggingface_test

import (
	"fmt"
	"log"

	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/internal/vfs"
)

// A checkpoint describes its model. Its parameters are read one by one.
func Example() {
	c, err := huggingface.Open(vfs.At("testdata/llama32"), huggingface.Options{Context: 128})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	s := c.Config.Settings
	fmt.Printf("%s: %d blocks, width %d, %d heads on %d, head %s\n", s.Kind, s.Layers, s.Width,
		s.Heads, s.KVHeads, s.Head)
	for _, p := range c.Params()[:3] {
		values, err := c.Values(p.Name)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(p.Name, p.Dims, len(values))
	}
	if err := c.Err(); err != nil { // values that are not finite
		log.Fatal(err)
	}
	// Output:
	// llama: 2 blocks, width 64, 4 heads on 2, head tied
	// embedding [328 64] 20992
	// layers.0.attn_norm [64] 64
	// layers.0.attn.qkv [128 64] 8192
}
