package build_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/train/build"
)

// sizes are the sizes of a Llama, with the memory that was measured for it.
type sizes struct {
	layers, width, heads, vocabulary, context, batch int

	quest, adamw, recompute bool

	mebibytes float64
}

// measured lists the largest resident sizes of two training steps of Llamas, in MiB.
var measured = []sizes{
	{8, 256, 4, 16000, 32, 32, true, true, true, 628},
	{1, 256, 16, 2000, 512, 8, true, true, false, 596},
	{4, 384, 6, 2000, 128, 8, false, true, false, 398},
	{2, 384, 6, 2000, 256, 8, true, false, false, 357},
	{2, 384, 24, 256, 512, 4, false, true, false, 700},
	{8, 192, 6, 2000, 256, 2, true, false, true, 172},
	{2, 384, 12, 16000, 32, 32, true, false, false, 446},
	{2, 384, 12, 2000, 128, 16, true, false, false, 371},
	{4, 64, 1, 16000, 512, 4, true, false, false, 329},
	{4, 512, 32, 256, 256, 4, true, true, false, 755},
	{8, 256, 16, 256, 256, 4, true, false, false, 529},
	{2, 512, 32, 16000, 128, 8, true, false, false, 651},
	{2, 192, 3, 256, 256, 16, true, false, false, 302},
	{2, 256, 8, 16000, 256, 2, true, true, false, 401},
	{4, 192, 3, 16000, 256, 4, true, false, false, 334},
	{1, 192, 3, 16000, 256, 16, true, false, true, 507},
	{1, 512, 16, 2000, 128, 16, true, true, false, 381},
	{1, 512, 8, 16000, 256, 4, true, false, false, 467},
	{8, 192, 12, 256, 32, 32, false, false, false, 236},
	{2, 256, 4, 16000, 512, 1, true, true, false, 414},
	{8, 128, 4, 2000, 128, 32, true, true, false, 767},
	{4, 64, 1, 16000, 512, 4, true, false, false, 335},
}

// distilled lists the same for Llamas with a teacher of their size.
var distilled = []sizes{
	{4, 256, 4, 16000, 128, 8, true, true, false, 892},
	{2, 128, 2, 32000, 256, 4, true, true, false, 1086},
	{2, 512, 8, 256, 256, 8, true, true, false, 593},
	{4, 256, 8, 2000, 256, 8, false, true, true, 304},
	{1, 192, 3, 16000, 256, 8, true, false, false, 1025},
	{2, 384, 6, 16000, 64, 16, true, true, false, 947},
	{4, 256, 4, 32000, 256, 8, true, true, false, 2361},
}

// recompute returns the setting that recomputes blocks, or nothing.
func recompute(blocks bool) architecture.Recompute {
	if blocks {
		return architecture.RecomputeBlocks
	}
	return architecture.RecomputeNone
}

func parts(m build.Sizes) map[string]float64 {
	out := map[string]float64{}
	for _, p := range build.Estimate(m) {
		out[p.What] = p.Bytes
	}
	return out
}

func total(m build.Sizes) (sum float64) {
	for _, p := range build.Estimate(m) {
		sum += p.Bytes
	}
	return sum
}

// TestEstimate checks that the estimate is as accurate as build.Accuracy promises.
func TestEstimate(t *testing.T) {
	for i, c := range append(slices.Clone(measured), distilled...) {
		hidden := (8*c.width/3 + 255) / 256 * 256
		matrices := float64(c.layers * (4*c.width*c.width + 3*c.width*hidden))
		m := build.Sizes{
			Layers: c.layers, Width: c.width, Hidden: hidden, Heads: c.heads, Vocabulary: c.vocabulary,
			Context: c.context, Batch: c.batch, Recompute: recompute(c.recompute),
			Parameters: matrices + float64(2*c.vocabulary*c.width+c.width*(2*c.layers+1)),
		}
		if c.quest {
			m.Quantized = matrices
		}
		if c.adamw {
			m.States = 2 * m.Parameters
		}
		if i >= len(measured) {
			m.Teacher = build.Teacher{Parameters: m.Parameters, Width: m.Width, Hidden: m.Hidden,
				Heads: m.Heads}
		}
		got := total(m) / (c.mebibytes * (1 << 20))
		if math.Abs(got-1) > build.Accuracy {
			t.Errorf("%+v: the estimate is %.2f of what was measured", c, got)
		}
	}
}

// TestEstimateOfAdapters compares the estimate with measurements of a model of the size of
// SmolLM2-135M in W4A16 with adapters of rank 16, four sequences of 256 tokens, and frozen weights
// in float32 and as codes of Q4_0.
func TestEstimateOfAdapters(t *testing.T) {
	m := build.Sizes{Layers: 30, Width: 576, Hidden: 1536, Heads: 9, KeyWidth: 192, Vocabulary: 49152,
		Context: 256, Batch: 4,
		Parameters: 134_515_008 + 4_884_480, Frozen: 134_515_008, Adapted: 106_168_320,
		Quantized: 106_168_320, States: 2 * 4_884_480}
	for bytes, megabytes := range map[float64]float64{4: 3442, 4.5 / 8: 2993} {
		m.FrozenBytes = 4*(m.Frozen-m.Adapted) + bytes*m.Adapted
		if got := total(m) / (megabytes * 1e6); math.Abs(got-1) > build.Accuracy {
			t.Errorf("with %g bytes for a frozen weight, the estimate is %.2f of what was measured", bytes,
				got)
		}
	}
}

// TestEstimateOfGeneration checks that continuing texts needs KV caches, and scores and logits only
// for the tokens that are processed at once.
func TestEstimateOfGeneration(t *testing.T) {
	m := build.Sizes{Layers: 2, Width: 64, Hidden: 96, Heads: 4, KeyWidth: 32, Vocabulary: 328,
		Context: 49152, Batch: 1, Parameters: 82752, Forward: true}
	whole := parts(m)
	m.Piece = 64
	pieces := parts(m)
	const (
		scores = "attention scores, which grow with the square of the context"
		logits = "logits of the vocabulary"
	)
	const caches = "KV cache"
	if share := whole[scores] / pieces[scores]; share != 49152/64 ||
		pieces[logits]*49152 != whole[logits] || pieces[caches] != 4*2*2*49152*32 || whole[caches] != 0 {
		t.Errorf("whole sequences %+v, pieces %+v", whole, pieces)
	}
	// Measured: the largest resident size of `cage generate` with GOGC=10, for
	// host/model/huggingface/testdata/llama32 with 131072 positions, --context 49152 and a prompt of
	// 32 kB.
	const mebibytes = 258
	if got := total(m) / (mebibytes * (1 << 20)); math.Abs(got-1) > build.Accuracy {
		t.Errorf("the estimate is %.2f of what was measured", got)
	}
}

// TestEstimateGrows checks that the estimate of a huge model does not overflow, and that it grows
// with a teacher, without recomputation and with gradients.
func TestEstimateGrows(t *testing.T) {
	base := build.Sizes{Layers: 4096, Width: 1 << 20, Hidden: 1 << 22, Heads: 1 << 16,
		Vocabulary: 1 << 24,
		Context:    1 << 20, Batch: 1 << 20, Parameters: 1e17, Quantized: 1e17, States: 1e18}
	all := total(base)
	if math.IsInf(all, 0) || math.IsNaN(all) || all < 1e20 {
		t.Errorf("the largest model needs %g bytes", all)
	}
	recompute, forward, taught := base, base, base
	taught.Teacher.Parameters = 1e17
	if more := total(taught); !(more > all+4e17) {
		t.Errorf("%g bytes, with a teacher %g", all, more)
	}
	recompute.Recompute, forward.Forward = architecture.RecomputeBlocks, true
	if r, f := total(recompute), total(forward); !(f < r && r < all) {
		t.Errorf("%g bytes, recomputed %g, forward %g", all, r, f)
	}
}

// shape is a model whose heads need not share its width, with the memory measured for it.
type shape struct {
	normed                                                           bool
	layers, width, heads, headSize, keyHeads, hidden, context, batch int

	recompute bool
	megabytes float64
}

// shapes lists the largest resident sizes, in MB, of three steps of models with a vocabulary of 256
// bytes, trained with 4-bit QuEST and AdamW.
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

// TestEstimateOfShapes checks the estimate for wide heads, few key heads, and QK norms.
func TestEstimateOfShapes(t *testing.T) {
	for _, c := range shapes {
		heads, keys := c.heads*c.headSize, c.keyHeads*c.headSize
		matrices := float64(c.layers * c.width * (2*heads + 2*keys + 3*c.hidden))
		m := build.Sizes{
			Layers: c.layers, Width: c.width, Hidden: c.hidden, Heads: c.heads, HeadWidth: heads,
			KeyWidth: keys, Normed: c.normed,
			Vocabulary: 256, Context: c.context, Batch: c.batch, Recompute: recompute(c.recompute),
			Parameters: matrices + float64(2*256*c.width), Quantized: matrices,
		}
		m.States = 2 * m.Parameters
		got := total(m) / 1e6 / c.megabytes
		if math.Abs(got-1) > 0.15 {
			t.Errorf("%+v: the estimate is %.2f of what was measured", c, got)
		}
	}
}

// TestReport checks the sum and the order of the parts, and that Fits agrees with Err.
func TestReport(t *testing.T) {
	with := small
	with.Teacher.Parameters = 2.2e6
	all := total(with)
	for _, available := range []*build.Available{nil, {Bytes: int64(all)}, {Bytes: int64(all / 2)}} {
		r := build.NewReport(build.BySizes, build.Estimate(with), available, nil)
		if want := r.Err() == nil; r.Fits != want || r.Bytes != all || r.Available != available {
			t.Errorf("%+v, want %g bytes and fits %v", r, all, want)
		}
		sum := 0.0
		for _, p := range r.Parts {
			sum += p.Bytes
		}
		if math.Abs(sum-all) > 1e-9*all {
			t.Errorf("the parts are %g bytes, want %g", sum, all)
		}
		if !slices.IsSortedFunc(r.Parts, func(a, b build.Part) int { return int(b.Bytes - a.Bytes) }) {
			t.Errorf("not the largest first: %v", r.Parts)
		}
		if !slices.ContainsFunc(r.Parts,
			func(p build.Part) bool { return strings.Contains(p.What, "teacher") && p.Bytes == 4*2.2e6 }) {
			t.Errorf("no teacher among %v", r.Parts)
		}
	}
}
