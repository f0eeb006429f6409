package memory_test

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/host/train/memory"
)

// shape is a model whose heads need not share its width, with what was measured of it.
type shape struct {
	normed                                                           bool
	layers, width, heads, headSize, keyHeads, hidden, context, batch int

	recompute bool
	megabytes float64
}

// shapes are the largest resident sizes of three steps of 4-bit QuEST with AdamW, in MB, of models of 256 bytes.
var shapes = []shape{
	{true, 8, 256, 2, 64, 1, 512, 64, 32, false, 524},
	{false, 8, 256, 4, 32, 4, 1024, 256, 8, false, 816},
	{false, 1, 256, 4, 32, 1, 768, 128, 8, true, 138},
	{false, 2, 384, 8, 32, 4, 1536, 32, 64, false, 434},
	{true, 2, 128, 4, 128, 4, 512, 128, 32, false, 448},
	{false, 8, 128, 16, 32, 4, 256, 32, 32, false, 322},
	{true, 4, 384, 8, 128, 8, 1152, 128, 16, false, 1116},
	{true, 4, 512, 4, 64, 4, 1536, 128, 16, true, 585},
	{false, 2, 256, 16, 64, 4, 1024, 32, 32, false, 280},
	{true, 2, 256, 4, 128, 4, 1024, 32, 32, false, 270},
	{false, 1, 256, 8, 32, 2, 768, 64, 64, false, 283},
	{true, 4, 384, 4, 64, 2, 1152, 128, 32, false, 1003},
	{false, 4, 256, 16, 64, 8, 768, 64, 32, false, 667},
	{true, 4, 512, 4, 64, 2, 1024, 32, 64, false, 623},
	{false, 4, 128, 16, 32, 1, 384, 128, 8, false, 254},
	{false, 2, 512, 4, 64, 4, 1536, 128, 32, true, 597},
	{true, 1, 256, 16, 64, 2, 512, 64, 32, false, 255},
	{true, 8, 384, 8, 128, 1, 768, 128, 8, true, 590},
	{true, 8, 256, 16, 32, 4, 512, 128, 16, true, 434},
	{false, 2, 128, 4, 128, 4, 256, 256, 16, false, 388},
	{false, 8, 384, 16, 32, 1, 1152, 256, 8, false, 1490},
	{false, 4, 128, 2, 128, 1, 384, 32, 32, false, 180},
	{true, 1, 128, 4, 32, 4, 512, 256, 8, true, 150},
	{true, 8, 256, 2, 128, 1, 768, 256, 4, false, 502},
	{true, 2, 384, 16, 32, 2, 768, 64, 16, false, 259},
	{false, 1, 512, 16, 64, 16, 1024, 128, 8, true, 277},
	{true, 2, 384, 8, 32, 2, 768, 128, 32, false, 511},
	{true, 4, 128, 16, 32, 2, 384, 64, 16, false, 257},
	{false, 2, 512, 2, 128, 1, 1024, 32, 64, false, 393},
	{true, 4, 512, 4, 64, 1, 1536, 64, 16, true, 467},
	{true, 4, 256, 8, 64, 2, 1024, 32, 64, false, 568},
	{false, 2, 512, 2, 128, 1, 2048, 64, 32, false, 543},
	{true, 1, 256, 8, 64, 1, 1024, 64, 16, false, 167},
	{true, 1, 256, 16, 32, 2, 512, 32, 64, true, 190},
	{true, 8, 512, 16, 32, 8, 2048, 64, 16, false, 1362},
	{true, 2, 128, 4, 64, 2, 512, 256, 8, true, 175},
}

// TestEstimateOfShapes: wide heads, few heads of keys, and norms of queries and keys.
func TestEstimateOfShapes(t *testing.T) {
	for _, c := range shapes {
		heads, keys := c.heads*c.headSize, c.keyHeads*c.headSize
		matrices := float64(c.layers * c.width * (2*heads + 2*keys + 3*c.hidden))
		m := memory.Model{
			Layers: c.layers, Width: c.width, Hidden: c.hidden, Heads: c.heads, HeadWidth: heads, KeyWidth: keys, Normed: c.normed,
			Vocabulary: 256, Context: c.context, Batch: c.batch, Recompute: c.recompute,
			Parameters: matrices + float64(2*256*c.width), Quantized: matrices,
		}
		m.States = 2 * m.Parameters
		got := memory.Estimate(m).Total() / 1e6 / c.megabytes
		if math.Abs(got-1) > 0.15 {
			t.Errorf("%+v: the estimate is %.2f of what was measured", c, got)
		}
	}
}
