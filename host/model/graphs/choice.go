package graphs

import (
	"fmt"
	"math/rand/v2"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/internal/lists"
)

// chooseCore returns the attention core for queries and keys [batch, context, heads, size] and the
// document numbers in each row, [batch, context]; nil means one document. GPUs have no fused core
// in float32, or with a window or a cap.
func chooseCore(a network.Attending, query, key, segments *graph.Node) attentionCore {
	g, dims := query.Graph(), query.Shape().Dimensions
	d := engine.DeviceOf(g)
	switch {
	case d.SharesMemory() || !engine.InBFloat16(g):
		return plainCore(a, segments)
	case a.Window > 0 || a.Cap > 0:
		d.Once(windowKey{}, func() any {
			d.Warn("attention with a window, or with a cap on its scores, takes more time and memory: " +
				"it is computed without the device's fused operation")
			return nil
		})
		return plainCore(a, segments)
	}
	const multiple = 8 // of features, for cuDNN
	if dims[3]%multiple != 0 {
		d.Once(sizeKey{}, func() any {
			d.Warn("attention with heads of this size is computed without the device's fused operation, "+
				"which takes more time and memory", "size", dims[3], "want a multiple of", multiple)
			return nil
		})
		return plainCore(a, segments)
	}
	c := coreSizes{group: dims[2] / key.Shape().Dim(2), size: dims[3], context: dims[1],
		documents: segments != nil, scale: a.Scale}
	return c.choose(d, segments)
}

func (c coreSizes) choose(d *engine.Device, segments *graph.Node) attentionCore {
	if d.Attention() == device.PlainAttention || d.Attention() == device.AutoAttention &&
		!d.Passes(c.kind(),
			"attention is computed without the device's fused operation, which takes more time and memory",
			func() (engine.Trial, error) { return c.trial(), nil }) {
		return plainCore(network.Attending{Scale: c.scale}, segments)
	}
	return c.fused(segments)
}

// windowKey is the key of the warning about windows and caps, and sizeKey of that about sizes.
type (
	windowKey struct{}
	sizeKey   struct{}
)

// coreSizes holds the sizes on which the correctness and speed of the fused core may depend.
type coreSizes struct {
	group, size, context int
	documents            bool
	scale                float64 // of scores
}

// attentionTile is the tile size of fused attention: it reads positions in multiples of this
// number.
const attentionTile = 128

// kind names the class of sizes that one trial covers: contexts are in the same class if they have
// the same remainder modulo the tile size.
func (c coreSizes) kind() string {
	kind := fmt.Sprintf("attention with heads of size %d", c.size)
	if c.group > 1 {
		kind += fmt.Sprintf(", %d query heads to a key head", c.group)
	}
	if rest := c.context % attentionTile; rest > 0 {
		kind += fmt.Sprintf(", %d·n + %d tokens", attentionTile, rest)
	}
	if c.documents {
		kind += ", by documents"
	}
	return kind
}

func (c coreSizes) fused(segments *graph.Node) attentionCore {
	core := fusedCore(c.scale)
	if segments != nil {
		return separatingCore(segments, core)
	}
	return core
}

// trial returns a trial that compares the fused core and its gradients with the plain core, on
// random numbers and with about the model's context.
func (c coreSizes) trial() engine.Trial {
	const maxContext, scores = 4096, 1 << 26
	if c.context > maxContext {
		c.context = maxContext + c.context%attentionTile
	}
	keyHeads := 2
	heads := keyHeads * c.group
	batch := min(max(scores/(heads*c.context*c.context), 2), 64)
	rng := rand.New(rand.NewPCG(1, 2))
	// The operands of both cores are rounded to 8 bits, at different points.
	t := engine.Trial{Compare: func(fused, plain [][]float32) error {
		const limit = 0.02
		for i, what := range []string{"values", "gradient of queries", "gradient of keys",
			"gradient of values"} {
			if distance := engine.Distance(fused[i], plain[i]); !(distance < limit) {
				return fmt.Errorf("the %s of fused attention differ by %.2g from those of plain attention, "+
					"relative to their norm: want less than %g", what, distance, limit)
			}
		}
		return nil
	}}
	add := func(name string, heads int) {
		values := lists.Make(batch*c.context*heads*c.size, func(int) float32 {
			return float32(rng.NormFloat64())
		})
		t.Inputs = append(t.Inputs, engine.Input{Spec: engine.Spec{Name: name,
			Shape: shapes.Make(shapes.Float32, batch, c.context, heads, c.size)}, Data: values})
	}
	add("query", heads)
	add("key", keyHeads)
	add("value", keyHeads)
	add("adjoint", heads)
	var documents []int32
	if c.documents {
		documents = randomDocuments(rng, batch, c.context)
	}
	t.Fused = coreAndAdjoints(documents, c.fused)
	t.Plain = coreAndAdjoints(documents,
		func(segments *graph.Node) attentionCore {
			return plainCore(network.Attending{Scale: c.scale}, segments)
		})
	return t
}

func randomDocuments(rng *rand.Rand, batch, context int) []int32 {
	const perRow = 8 // approximate number of documents
	segments := make([]int32, 0, batch*context)
	for range batch {
		end, document := context-rng.IntN(context/perRow+1), int32(0)
		for position := range context {
			if rng.IntN(context/perRow+1) == 0 {
				document++
			}
			if position >= end {
				document = dataset.Padding
			}
			segments = append(segments, document)
		}
	}
	return segments
}

// coreAndAdjoints returns the outputs of a core and the adjoints of its inputs. documents holds the
// segments of each row; nil means one document.
func coreAndAdjoints(documents []int32,
	coreOf func(segments *graph.Node) attentionCore) engine.BuildFunc {
	return func(g *graph.Graph, in []*graph.Node) []*graph.Node {
		var segments *graph.Node
		if documents != nil {
			segments = graph.Constant(g, documents, in[0].Shape().Dim(0), in[0].Shape().Dim(1))
		}
		mixed, back := coreOf(segments)(in[0], in[1], in[2])
		dQuery, dKey, dValue := back(in[3])
		return []*graph.Node{mixed, dQuery, dKey, dValue}
	}
}
