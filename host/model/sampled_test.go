package model

import (
	"fmt"
	"math"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

func keyNode(g *graph.Graph, key [2]uint32) *graph.Node { return graph.Const(g, key[:]) }

// TestSampledLoss checks that the loss and its gradients are those of a batch whose targets are the
// drawn tokens. Other keys and other chunks must draw other tokens.
func TestSampledLoss(t *testing.T) {
	for _, documents := range []bool{false, true} {
		m := newTransformer(architecture.Settings{Kind: architecture.KindLlama, Layers: 2, Width: 16,
			Heads: 2, Hidden: 24, Vocab: 40}, Options{Documents: documents, LossTokens: 8})
		m.FillIn()
		const batch, context = 3, 8
		tokens := hashedTokens(0, batch*(context+1), 40)
		if documents {
			tokens = weightedDocuments(batch, context)
		}
		for _, precision := range []device.Precision{device.Float32, device.BFloat16} {
			t.Run(fmt.Sprint(precision, documents), func(t *testing.T) {
				out := evaluateIn(t, precision, m, hashedWeights(m.Params()), tokens, batch,
					func(params []*graph.Node, ids *graph.Node) []*graph.Node {
						ids = graph.Reshape(ids, m.BatchDims(batch, context)...)
						key := keyNode(ids.Graph(), [2]uint32{1, 2})
						sampled := m.SampledLoss(params, ids, key, nil)
						in, h := m.readHidden(params, ids, nil)
						targets := drawTargets(m.chunks(batch*context), h, m.head(params), key)
						others := drawTargets(m.chunks(batch*context), h, m.head(params),
							keyNode(ids.Graph(), [2]uint32{1, 3}))
						want := m.meanLoss(in, h, m.head(params), targets)
						nodes := []*graph.Node{targets, others, sampled, want}
						for i := range nodes[:2] {
							nodes[i] = graph.ConvertDType(nodes[i], dtypes.Float32)
						}
						return append(append(nodes, graph.Gradient(sampled, params...)...),
							graph.Gradient(want, params...)...)
					})
				if engine.Distance(out[0], out[1]) == 0 {
					t.Error("two keys draw the same tokens")
				}
				for i := range len(out[0]) / 2 {
					if k := len(out[0])/2 + i; out[0][i] != out[0][k] {
						break
					} else if k == len(out[0])-1 {
						t.Error("halves of the tokens are the same")
					}
				}
				if out[2][0] != out[3][0] || !(out[2][0] > 0.1) {
					t.Errorf("the loss is %g, want %g", out[2][0], out[3][0])
				}
				n := len(m.Params())
				for i := range n {
					if d := engine.Distance(out[4+i], out[4+n+i]); !(d < 1e-6) {
						t.Errorf("gradient of %s: the relative difference is %.2g", m.Params()[i].Name, d)
					}
				}
			})
		}
	}
}

// weightedDocuments returns rows of two documents each, with weights.
func weightedDocuments(batch, context int) (tokens []int32) {
	for row := range batch {
		segments, weights := make([]int32, context+1), make([]int32, context+1)
		for i := range segments {
			segments[i] = int32(i / 5)
			weights[i] = int32(math.Float32bits(float32(i%3) / 2))
		}
		tokens = append(append(append(tokens, hashedTokens(row, context+1, 40)...), segments...),
			weights...)
	}
	return tokens
}

// TestLabels checks effective sample sizes.
func TestLabels(t *testing.T) {
	plain := newTransformer(tiny, Options{})
	if got := plain.Labels([][]int32{make([]int32, 3*9), make([]int32, 3*9)}, 8); got != 48 {
		t.Errorf("%v labels of two batches of 3 × 8 tokens", got)
	}
	documents := newTransformer(tiny, Options{Documents: true})
	// Of the weights of positions 1 to 8, three are ½, two 0 and three 1.
	got := documents.Labels([][]int32{weightedDocuments(3, 8)}, 8)
	if want := (3 * 4.5) * (3 * 4.5) / (3 * 3.75); math.Abs(got-want) > 1e-12 {
		t.Errorf("%v labels with weights, want %v", got, want)
	}
	if got := documents.Labels([][]int32{make([]int32, 27)}, 8); got != 0 {
		t.Errorf("%v labels without weights", got)
	}
}

// TestDrawColumns checks that columns are drawn as often as they are likely, also with an outlying
// logit.
func TestDrawColumns(t *testing.T) {
	logits := []float32{0, 1, -1, 3, -30, 2.5, 0.25}
	const rows = 1 << 16
	total := 0.0
	for _, v := range logits {
		total += math.Exp(float64(v))
	}
	m := newLlama(tiny)
	out := evaluateIn(t, device.Float32, m, hashedWeights(m.Params()), []int32{0, 0}, 1,
		func(params []*graph.Node, ids *graph.Node) []*graph.Node {
			x := graph.BroadcastToDims(graph.Reshape(graph.Const(ids.Graph(), logits), 1, len(logits)), rows,
				len(logits))
			drawn := drawColumns(x, keyNode(ids.Graph(), [2]uint32{5, 6}))
			columns := graph.Iota(ids.Graph(), shapes.Make(dtypes.Int32, rows, len(logits)), 1)
			same := graph.ConvertDType(graph.Equal(graph.BroadcastToDims(drawn, rows, len(logits)), columns),
				dtypes.Float32)
			return []*graph.Node{graph.ReduceSum(same, 0)}
		})
	for i, v := range logits {
		p := math.Exp(float64(v)) / total
		if deviation := math.Abs(float64(out[0][i]) - rows*p); deviation > 4*math.Sqrt(rows*p*(1-p))+0.5 {
			t.Errorf("column %d: %v times, want %v", i, out[0][i], rows*p)
		}
	}
}

// TestGaussNewton checks that the mean over keys of n·‖g‖², where g is the gradient of the mean of
// n drawn losses, is the trace of the Gauss-Newton matrix of the loss, Σᵢ Σ_c p_ic·‖∇ℓ_ic‖²/n, a
// sum over all labels c of each token i.
func TestGaussNewton(t *testing.T) {
	testlevel.Long(t, "300 gradients of drawn losses, and 24 of single ones")
	settings := architecture.Settings{Kind: architecture.KindLlama, Layers: 1, Width: 8, Heads: 2,
		Hidden: 12, Vocab: 6}
	settings.FillIn()
	m := newTransformer(settings, Options{})
	const context, keys = 4, 300
	ids := hashedTokens(0, context+1, settings.Vocab)
	squares := func(nodes []*graph.Node) *graph.Node {
		total := graph.ScalarZero(nodes[0].Graph(), dtypes.Float32)
		for _, n := range nodes {
			total = graph.Add(total, graph.ReduceAllSum(graph.Mul(n, n)))
		}
		return total
	}
	weights := hashedWeights(m.Params())
	exact := 0.0
	for i := range context {
		for c := range settings.Vocab {
			out := evaluateIn(t, device.Float32, m, weights, ids, 1,
				func(params []*graph.Node, ids *graph.Node) []*graph.Node {
					_, h := m.readHidden(params, ids, nil)
					targets := graph.Const(ids.Graph(), []int32{0, 1, 2, 3})
					targets = graph.Where(graph.Equal(targets, graph.Scalar(ids.Graph(), dtypes.Int32, i)),
						graph.Scalar(ids.Graph(), dtypes.Int32, c), targets)
					loss := graph.Reshape(graph.Slice(crossEntropy(1, h, m.head(params), targets),
						graph.AxisElem(i)))
					return []*graph.Node{loss, squares(graph.Gradient(loss, params...))}
				})
			exact += math.Exp(-float64(out[0][0])) * float64(out[1][0]) / context
		}
	}
	sum, sum2 := 0.0, 0.0
	const each = 20 // keys per graph
	for first := range keys / each {
		out := evaluateIn(t, device.Float32, m, weights, ids, 1,
			func(params []*graph.Node, ids *graph.Node) []*graph.Node {
				var list []*graph.Node
				for k := range each {
					loss := m.SampledLoss(params, ids,
						keyNode(ids.Graph(), [2]uint32{uint32(first), uint32(1000 * k)}), nil)
					list = append(list, squares(graph.Gradient(loss, params...)))
				}
				return list
			})
		for _, v := range out {
			x := float64(v[0]) * context
			sum, sum2 = sum+x, sum2+x*x
		}
	}
	mean := sum / keys
	deviation := math.Sqrt((sum2/keys - mean*mean) / keys)
	t.Logf("%v keys: %.4g ± %.2g; exact: %.4g", keys, mean, deviation, exact)
	if math.Abs(mean-exact) > 4*deviation || deviation > 0.1*exact {
		t.Errorf("the mean over keys is %v ± %v, want %v", mean, deviation, exact)
	}
}
