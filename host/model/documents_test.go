package model

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/host/testing/pjrtrecord"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// packed returns a batch of two rows of documents with padding, and the documents of each row.
func packed(context, vocabulary int, rng *rand.Rand) (batch []int32, rows [][][]int32) {
	batch = make([]int32, 2*dataset.Planes*(context+1))
	rows = make([][][]int32, 2)
	for i, r := range dataset.RowsOf(batch, context) {
		place := 0
		for n, length := range [][]int{{4, 2, 5}, {7, 3}}[i] {
			var document []int32
			for j := range length {
				id := int32(rng.IntN(vocabulary))
				document = append(document, id)
				r.Tokens[place], r.Segments[place] = id, int32(n)
				if j > 0 {
					r.SetWeight(place, 1)
				}
				place++
			}
			rows[i] = append(rows[i], document)
		}
		for ; place <= context; place++ {
			r.Segments[place] = dataset.Padding
		}
	}
	return batch, rows
}

// TestDocumentsAreKeptApart checks that each token of several documents in one row has the loss
// that it has in the document alone, and that nothing else has a loss.
func TestDocumentsAreKeptApart(t *testing.T) {
	eachLanguage(t, func(t *testing.T, language Language) {
		const context = 12
		alone := language.(*transformer)
		together := *alone
		together.Documents = true
		weights := hashedWeights(alone.params)
		batch, rows := packed(context, alone.Vocab, rand.New(rand.NewPCG(1, 2)))
		lossesOf := func(m *transformer, batch []int32, rows, context int) []float32 {
			return evaluate(t, m, weights, batch, rows,
				func(params []program.Value, ids program.Value) []program.Value {
					return []program.Value{lossesIn(m, params, ids.Reshape(m.BatchDims(rows, context)...))}
				})[0]
		}
		got := lossesOf(&together, batch, len(rows), context)
		for i, documents := range rows {
			want := make([]float32, 0, context)
			for n, d := range documents {
				if n > 0 {
					want = append(want, 0) // the first token of a document is not a target
				}
				want = append(want, lossesOf(alone, d, 1, len(d)-1)...)
			}
			want = append(want, make([]float32, context-len(want))...)
			for j, loss := range got[i*context : (i+1)*context] {
				if !(math.Abs(float64(loss-want[j])) <= 2e-6*(1+math.Abs(float64(want[j])))) {
					t.Errorf("row %d, place %d: the loss is %v, that of the document alone %v", i, j, loss,
						want[j])
				}
			}
		}
	})
}

// TestPaddingOfPrograms checks that what a model's program quantizes does not depend on what is in
// padding, if a quantizer computes with a whole tensor.
func TestPaddingOfPrograms(t *testing.T) {
	const context = 12
	m := newLlama(tiny)
	m.Documents = true
	batch, _ := packed(context, m.Vocab, rand.New(rand.NewPCG(1, 2)))
	calls := map[string]*program.Call{}
	for _, s := range m.ActivationSites(2, context) {
		b := program.NewBuilder("largest")
		x := b.Input("x", program.FloatType(s.Tokens, s.Width))
		b.Output("value", x.Mul(x.Abs().MaxAll()))
		p, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		calls[s.Name] = &program.Call{Name: "largest", Meaning: p}
	}
	shape := network.Shape{Batch: 2, Context: context, Documents: true}
	p, err := network.New(m.Settings, shape, network.Quantizers{Calls: calls})
	if err != nil {
		t.Fatal(err)
	}
	in := map[string]reference.Tensor{}
	for i, w := range hashedWeights(m.params) {
		values := lists.Map(w, func(v float32) float64 { return float64(v) })
		in[m.params[i].Name] = reference.Floats(values, m.params[i].Dims...)
	}
	losses := func(id int32) []float64 {
		other := slices.Clone(batch)
		for i, r := range dataset.RowsOf(batch, context) {
			for place, segment := range r.Segments {
				if segment == dataset.Padding {
					other[i*dataset.Planes*(context+1)+place] = id
				}
			}
		}
		in[network.Tokens] = reference.Ints(other, m.BatchDims(2, context)...)
		out, err := reference.Run(p, in)
		if err != nil {
			t.Fatal(err)
		}
		return out[network.Losses].Floats
	}
	if first, second := losses(0), losses(int32(m.Vocab-1)); !slices.Equal(first, second) {
		t.Errorf("losses depend on padding: %v, %v", first, second)
	}
}

// TestFusedDocuments checks that on a GPU, each layer has fused attention for documents in one row,
// forward and backward: it only masks later keys, and heads have additional features.
func TestFusedDocuments(t *testing.T) {
	d, r, err := pjrtrecord.Open(t, 1,
		engine.Options{Precision: device.BFloat16, Attention: device.FusedAttention})
	if err != nil {
		t.Fatal(err)
	}
	const context, rows = 128, 2
	m := newLlama(architecture.Settings{Layers: 2, Heads: 4, KVHeads: 2, Width: 128, Hidden: 128,
		Vocab: 13})
	m.Documents = true
	batch, _ := packed(context, m.Vocab, rand.New(rand.NewPCG(1, 2)))
	evaluateOn(t, d, m, hashedWeights(m.params), batch, rows,
		func(params []program.Value, ids program.Value) []program.Value {
			loss, gradients := lossAndGradients(m, params, ids.Reshape(m.BatchDims(rows, context)...))
			return append(gradients, loss)
		})
	programs := r.Programs(t)
	text := programs[len(programs)-1]
	for what, want := range map[string]int{`@"__cudnn$fmhaSoftmax"`: 2,
		`@"__cudnn$fmhaSoftmaxBackward"`: 2, "PADDING_CAUSAL": 0} {
		if got := strings.Count(strings.ReplaceAll(text, "call_target_name = ", "@"), what); got != want {
			t.Errorf("%s: %d times, want %d", what, got, want)
		}
	}
	if head := fmt.Sprintf("tensor<%dx%dx4x%dxbf16>", rows, context,
		32+8 /* a bit for each of seven documents, and padding */); !strings.Contains(text, head) {
		t.Errorf("there are no %s", head)
	}
}
