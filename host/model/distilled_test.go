package model

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/internal/testdevice"
	"github.com/cage-qat/cage/internal/effort"
)

// teaching is a batch of a small model, with the logits of the model and of a teacher in float64.
type teaching struct {
	m               *transformer
	weights, taught [][]float32 // of the model and of its teacher
	batch           []int32
	logits, teacher []float64
}

// TestDistilled: on each architecture losses, divergences and cross-entropies are those that the logits give, and the
// gradient with respect to all parameters is that of the logits times the derivatives with respect to them. Quantizers of
// activations act on the model alone.
func TestDistilled(t *testing.T) {
	effort.Long(t, "gradients of every architecture")
	eachLanguage(t, testDistilled)
}

func testDistilled(t *testing.T, language Language) {
	const context, rows = 12, 2
	m := *language.(*transformer)
	m.Documents = true
	c := teaching{m: &m, weights: hashedWeights(m.params), taught: initial(&m, 7)}
	c.batch, _ = packed(context, m.Vocab, rand.New(rand.NewPCG(1, 2)))
	for _, r := range DocumentRows(c.batch, context) {
		for place := 1; place <= context; place++ {
			r.SetWeight(place, r.Weight(place)*(1+float32(place)/8))
		}
	}
	half := func(_ ActivationSite, x *graph.Node) *graph.Node { return graph.MulScalar(x, 0.5) }
	c.logits = wide(c.run(t, rows, func(params, _ []*graph.Node, batch *graph.Node) []*graph.Node {
		return []*graph.Node{m.BatchLogits(params, batch, half)}
	})[0])
	c.teacher = wide(c.run(t, rows, func(_, taught []*graph.Node, batch *graph.Node) []*graph.Node {
		return []*graph.Node{m.BatchLogits(taught, batch, nil)}
	})[0])
	for _, d := range []Distillation{{0.5, 1, 1}, {0.5, 2, 0.75}, {0.2, 1, 0.5}} {
		t.Run(fmt.Sprint(d), func(t *testing.T) { c.check(t, d, context, half) })
	}
}

// run computes outputs from the parameters of the model, those of the teacher, and the batch.
func (c *teaching) run(t *testing.T, rows int, build func(params, taught []*graph.Node, batch *graph.Node) []*graph.Node) [][]float32 {
	t.Helper()
	device := testdevice.Open(t, engine.Options{})
	var in []*engine.Buffer
	for _, weights := range [][][]float32{c.weights, c.taught} {
		for i, p := range c.m.params {
			in = append(in, testdevice.Upload(t, device, weights[i], p.Dims...))
		}
	}
	in = append(in, testdevice.Upload(t, device, c.batch, rows, Planes, len(c.batch)/rows/Planes))
	n := len(c.m.params)
	return testdevice.Evaluate(t, device, in, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		return build(in[:n], in[n:2*n], in[2*n])
	})
}

func (c *teaching) check(t *testing.T, d Distillation, context int, q ActivationQuantizer) {
	rows, vocabulary := len(c.logits)/context/c.m.Vocab, c.m.Vocab
	slopes := make([]float32, len(c.logits))
	losses, divergences, crossEntropies := make([]float64, rows*context), make([]float64, rows*context), make([]float64, rows*context)
	for row, r := range DocumentRows(c.batch, context) {
		for place := range context {
			at := row*context + place
			mine, theirs := c.logits[at*vocabulary:(at+1)*vocabulary], c.teacher[at*vocabulary:(at+1)*vocabulary]
			weight, target := float64(r.Weight(place+1)), r.Tokens[place+1]
			divergences[at], crossEntropies[at] = weight*divergence64(d, mine, theirs), -weight*math.Log(softmax64(mine, 1)[target])
			losses[at] = d.Weight*divergences[at] + (1-d.Weight)*crossEntropies[at]
			certain := make([]float64, vocabulary)
			certain[target] = 1
			for i, slope := range slopes64(d, mine, theirs) {
				slopes[at*vocabulary+i] = float32(weight * (d.Weight*slope + (1-d.Weight)*(softmax64(mine, 1)[i]-certain[i])))
			}
		}
	}
	out := c.run(t, rows, func(params, taught []*graph.Node, batch *graph.Node) []*graph.Node {
		got := c.m.Distilled(params, batch, c.m.BatchLogits(taught, batch, nil), q, d)
		all := append([]*graph.Node{got.Losses, got.Divergences, got.CrossEntropies}, graph.Gradient(graph.ReduceAllSum(got.Losses), params...)...)
		through := engine.Constant(batch.Graph(), slopes, rows, context, vocabulary)
		logits := c.m.BatchLogits(params, batch, q)
		return append(all, graph.Gradient(graph.ReduceAllSum(graph.Mul(logits, through)), params...)...)
	})
	for i, want := range [][]float64{losses, divergences, crossEntropies} {
		for at := range want {
			if apart := math.Abs(float64(out[i][at]) - want[at]); !(apart <= 2e-6*(1+math.Abs(want[at]))) {
				t.Errorf("output %d at %d is %v, want %v", i, at, out[i][at], want[at])
			}
		}
	}
	for i, p := range c.m.params {
		got, want := out[3+i], out[3+len(c.m.params)+i]
		if apart := relativeDistance(got, want); !(apart < 5e-5) {
			t.Errorf("the gradient of %s is %.2g from that of the logits, relative to its norm", p.Name, apart)
		}
	}
}

// TestDistilledChecks: ids outside the vocabulary make all losses NaN, and logits of another shape are refused.
func TestDistilledChecks(t *testing.T) {
	m := newLlama(tiny)
	tokens := hashedTokens(0, 12, tiny.Vocab)
	tokens[3] = int32(tiny.Vocab)
	d := Distillation{Beta: 0.5, Temperature: 1, Weight: 1}
	out := evaluate(t, m, initial(m, 1), tokens, 2, func(params []*graph.Node, ids *graph.Node) []*graph.Node {
		got := m.Distilled(params, ids, m.BatchLogits(params, ids, nil), nil, d)
		return []*graph.Node{got.Losses, got.Divergences, got.CrossEntropies}
	})
	for i, list := range out {
		for _, loss := range list {
			if loss == loss {
				t.Errorf("output %d: %v, want NaN", i, list)
				break
			}
		}
	}
	evaluate(t, m, initial(m, 1), tokens, 2, func(params []*graph.Node, ids *graph.Node) (out []*graph.Node) {
		teacher := m.BatchLogits(params, ids, nil)
		out = []*graph.Node{teacher}
		defer func() {
			if recover() == nil {
				t.Error("logits of another shape were accepted")
			}
		}()
		m.Distilled(params, ids, graph.Slice(teacher, graph.AxisRange(0, 1)), nil, d)
		return out
	})
}
