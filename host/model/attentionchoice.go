package model

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model/architecture"
)

// chooseCore returns the core of attention by position for the graph's device, and nil where attention by feature is
// better: where products need their operands transposed, and in float32 on GPUs.
func chooseCore(g *graph.Graph, s architecture.Settings, context int, segments *graph.Node) attentionCore {
	if engine.TransposesOperands(g) || !engine.OnCPU(g) && !engine.InBFloat16(g) {
		return nil
	}
	return coreSizes{group: s.Heads / s.KVHeads, size: s.HeadSize, context: context, documents: segments != nil && !engine.OnCPU(g)}.choose(engine.DeviceOf(g), segments)
}

// coreSizes are those on which it may depend whether the fused core is right, and fast.
type coreSizes struct {
	group, size, context int
	documents            bool
}

// attentionTile is a number of positions of which fused attention reads whole multiples at once.
const attentionTile = 128

// kind names what is tried: contexts are alike that leave the same remainder when they are divided by the size of tiles.
func (c coreSizes) kind() string {
	kind := fmt.Sprintf("attention with heads of %d", c.size)
	if c.group > 1 {
		kind += fmt.Sprintf(", %d to a key", c.group)
	}
	if rest := c.context % attentionTile; rest > 0 {
		kind += fmt.Sprintf(", %d·n + %d tokens", attentionTile, rest)
	}
	if c.documents {
		kind += ", by documents"
	}
	return kind
}

// choose returns the core that the device is to use. segments are as for [plainCore].
func (c coreSizes) choose(d *engine.Device, segments *graph.Node) attentionCore {
	if d.Attention() == device.PlainAttention || d.Attention() == device.AutoAttention && !d.ChooseFused(c.kind(),
		"attention is computed without the device's fused operation, which takes more time and memory", func() (engine.Trial, error) { return c.trial(d), nil }) {
		return plainCore(segments)
	}
	return c.fused(d, segments)
}

// fused is the fused core of a device.
func (c coreSizes) fused(d *engine.Device, segments *graph.Node) attentionCore {
	scale := 1 / math.Sqrt(float64(c.size))
	switch {
	case d.Kind() == device.CPU:
		return nativeCore(segments)
	case segments != nil:
		return markedCore(segments, fusedCore(scale))
	}
	return fusedCore(scale)
}

// trial computes the cores and their gradients on random numbers: on the CPU, where it takes no times, of a short
// context, and on a GPU of about the model's.
func (c coreSizes) trial(d *engine.Device) engine.Trial {
	longest, scores := 256, 1<<18
	if d.Kind() != device.CPU {
		longest, scores = 4096, 1<<26
	}
	if c.context > longest {
		c.context = longest + c.context%attentionTile
	}
	keyHeads := 2
	heads := keyHeads * c.group
	batch := min(max(scores/(heads*c.context*c.context), 2), 64)
	rng := rand.New(rand.NewPCG(1, 2))
	t := engine.Trial{Compare: compareCores}
	add := func(name string, heads int) {
		values := make([]float32, batch*c.context*heads*c.size)
		for i := range values {
			values[i] = float32(rng.NormFloat64())
		}
		t.Inputs = append(t.Inputs, engine.Input{Spec: engine.Spec{Name: name, Shape: shapes.Make(dtypes.Float32, batch, c.context, heads, c.size)}, Data: values})
	}
	add("query", heads)
	add("key", keyHeads)
	add("value", keyHeads)
	add("adjoint", heads)
	var documents []int32
	if c.documents {
		documents = randomDocuments(rng, batch, c.context)
	}
	t.Fused = coreAndAdjoints(documents, func(segments *graph.Node) attentionCore { return c.fused(d, segments) })
	t.Plain = coreAndAdjoints(documents, plainCore)
	return t
}

// randomDocuments are the segments of rows that documents fill, and some padding.
func randomDocuments(rng *rand.Rand, batch, context int) []int32 {
	const most = 8 // documents in a row, about
	segments := make([]int32, 0, batch*context)
	for range batch {
		end, document := context-rng.IntN(context/most+1), int32(0)
		for place := range context {
			if rng.IntN(context/most+1) == 0 {
				document++
			}
			if place >= end {
				document = Padding
			}
			segments = append(segments, document)
		}
	}
	return segments
}

// coreAndAdjoints returns the outputs of a core and the adjoints of its inputs. documents are the segments of those in each
// row, nil for one.
func coreAndAdjoints(documents []int32, coreOf func(segments *graph.Node) attentionCore) engine.BuildFunc {
	return func(g *graph.Graph, in []*graph.Node) []*graph.Node {
		var segments *graph.Node
		if documents != nil {
			segments = engine.Constant(g, documents, in[0].Shape().Dim(0), in[0].Shape().Dim(1))
		}
		mixed, back := coreOf(segments)(in[0], in[1], in[2])
		dQuery, dKey, dValue := back(in[3])
		return []*graph.Node{mixed, dQuery, dKey, dValue}
	}
}

// compareCores says how far the two are apart: the operands of both are rounded to 8 bits, at different places.
func compareCores(fused, plain [][]float32) error {
	const most = 0.02
	for i, what := range []string{"values", "gradient of queries", "gradient of keys", "gradient of values"} {
		if apart := engine.Distance(fused[i], plain[i]); !(apart < most) {
			return fmt.Errorf("the %s of fused attention are %.2g from those of plain attention, relative to their norm: want less than %g", what, apart, most)
		}
	}
	return nil
}
