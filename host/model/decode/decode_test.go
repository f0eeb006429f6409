package decode_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"go.uber.org/goleak"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/decode"
	"github.com/cage-qat/cage/internal/testing/testdevice"
)

// settings holds settings of small models of every architecture and of its optional features.
var settings = map[string]architecture.Settings{
	"llama": {Kind: architecture.KindLlama, Heads: 2},
	"llama, tied": {Kind: architecture.KindLlama, Heads: 4, KVHeads: 2, Head: "tied",
		RopePairs: architecture.HalfSplit, RopeFactor: 8, RopeLow: 1, RopeHigh: 4, RopeOriginal: 16},
	"olmo2":  {Kind: architecture.KindOLMo2, Heads: 4, KVHeads: 2},
	"gemma":  {Kind: architecture.KindGemma, Heads: 4, KVHeads: 1, HeadSize: 8, Head: "tied"},
	"gemma3": {Kind: architecture.KindGemma3, Layers: 6, Heads: 4, KVHeads: 2, HeadSize: 8},
	"gemma2": {Kind: architecture.KindGemma2, Heads: 4, KVHeads: 2, HeadSize: 8, Window: 4,
		Head: "tied", AttentionMultiplier: 0.3, ScoreCap: 0.5, LogitCap: 1.5},
	"granite": {Kind: architecture.KindGranite, Heads: 4, KVHeads: 2, EmbeddingMultiplier: 12,
		ResidualMultiplier: 0.22, LogitsScaling: 8, AttentionMultiplier: 0.3},
	"mistral": {Kind: architecture.KindLlama, Heads: 4, KVHeads: 2, Window: 5},
	"gemma3, window": {Kind: architecture.KindGemma3, Layers: 6, Heads: 4, KVHeads: 2, HeadSize: 8,
		Window: 3},
	"olmo3": {Kind: architecture.KindOLMo3, Layers: 4, Heads: 4, KVHeads: 2, Window: 4,
		RopeFactor: 4, RopeLow: 1, RopeHigh: 32, RopeOriginal: 64, RopeScaling: architecture.ScalingYaRN},
	"qwen2": {Kind: architecture.KindQwen2, Heads: 4, KVHeads: 2},
	"smollm3": {Kind: architecture.KindSmolLM3, Layers: 4, Heads: 4, KVHeads: 2,
		RopePairs: architecture.Interleaved},
	"qwen3": {Kind: architecture.KindQwen3, Heads: 6, KVHeads: 2, HeadSize: 8},
}

type example struct {
	m       model.Language
	device  *engine.Device
	weights map[string][]float32
	params  []*engine.Buffer
}

func newExample(t testing.TB, s architecture.Settings) *example {
	t.Helper()
	return newExampleOn(t, s, engine.Options{})
}

func newExampleOn(t testing.TB, s architecture.Settings, o engine.Options) *example {
	t.Helper()
	return newExampleOf(t, s, model.Options{}, o)
}

func newExampleOf(
	t testing.TB, s architecture.Settings, options model.Options, o engine.Options,
) *example {
	t.Helper()
	s.Layers, s.Width, s.Hidden, s.Vocab, s.Context = max(s.Layers, 2), 24, 40, 37, 16
	m, err := model.New(s, options)
	if err != nil {
		t.Fatal(err)
	}
	device, err := engine.Open(device.CPU, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { device.Close() })
	e := &example{m: m.(model.Language), device: device, weights: map[string][]float32{}}
	rng := rand.New(rand.NewPCG(5, 6))
	for _, p := range m.Params() {
		values := make([]float32, p.Size())
		for i := range values {
			values[i] = float32(p.InitMean + 0.2*rng.NormFloat64())
		}
		e.weights[p.Name] = values
		e.params = append(e.params, testdevice.Upload(t, device, values, p.Dims...))
	}
	return e
}

const (
	length = 16 // capacity of the caches
	begun  = 5  // tokens read by a graph
	ends   = 11 // tokens of the longer sequence
)

var first = []int32{0, 4} // positions at which the two sequences begin

// begin reads the first tokens, some of which are padding, with a graph, and returns the caches.
func (e *example) begin(t testing.TB, tokens [][]int32) (caches [][]float32) {
	t.Helper()
	ids := testdevice.Upload(t, e.device, slices.Concat(tokens[0][:begun], tokens[1][:begun]), 2,
		begun)
	return testdevice.Evaluate(t, e.device, append(slices.Clone(e.params), ids),
		func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			var empty []*graph.Node
			for _, dims := range e.m.CacheDims(2, length) {
				// Cache entries after the tokens must not affect the result.
				empty = append(empty, graph.BroadcastToDims(graph.Const(g, float32(1e3)), dims...))
			}
			piece := model.Piece{Tokens: in[len(in)-1], Start: graph.Const(g, int32(0)),
				First: engine.Constant(g, first, 2)}
			_, next := e.m.Decode(in[:len(in)-1], piece, empty, nil)
			return next
		})
}

// whole returns the logits after the last token of a sequence, computed from the whole sequence.
func (e *example) whole(t testing.TB, tokens []int32) []float32 {
	t.Helper()
	ids := testdevice.Upload(t, e.device, slices.Concat(tokens, tokens[:1]), 1, len(tokens)+1)
	all := testdevice.Evaluate(t, e.device, append(slices.Clone(e.params), ids),
		func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
			return []*graph.Node{e.m.BatchLogits(in[:len(in)-1], in[len(in)-1], nil)}
		})[0]
	return all[len(all)-e.m.Network().Vocab:]
}

func sequences(vocabulary int) [][]int32 {
	rng := rand.New(rand.NewPCG(7, 8))
	tokens := make([][]int32, len(first))
	for i := range tokens {
		for range ends {
			tokens[i] = append(tokens[i], int32(rng.IntN(vocabulary)))
		}
	}
	return tokens
}

// next reads the tokens after those of begin, and returns the logits after the last one.
func next(
	t testing.TB, n *decode.Network, tokens [][]int32, caches [][]float32,
) (logits []float32) {
	t.Helper()
	for at := begun; at < ends; at++ {
		var err error
		place := decode.Positions{Length: length, Start: at, First: first}
		if logits, err = n.Next([]int32{tokens[0][at], tokens[1][at]}, place, caches, nil); err != nil {
			t.Fatal(err)
		}
	}
	return logits
}

// TestNext checks that two sequences of different lengths, begun by a graph, have the logits of the
// whole sequences, and that the number of goroutines does not change them.
func TestNext(t *testing.T) {
	for name, s := range settings {
		t.Run(name, func(t *testing.T) {
			e := newExample(t, s)
			vocabulary := e.m.Network().Vocab
			tokens := sequences(vocabulary)
			caches := e.begin(t, tokens)
			var before []float32
			for i, parallel := range []engine.Parallel{nil, e.device.Parallel} {
				n, err := decode.New(e.m, e.weights, decode.Options{Parallel: parallel})
				if err != nil {
					t.Fatal(err)
				}
				got := next(t, n, tokens, caches)
				if before != nil && !slices.Equal(got, before) {
					t.Errorf("parallel calls change the logits (%d)", i)
				}
				before = got
				for i := range tokens {
					nearby(t, got[i*vocabulary:(i+1)*vocabulary], e.whole(t, tokens[i][first[i]:]))
				}
			}
		})
	}
}

// nearby fails the test if logits differ by more than 5e-6 of the largest one. Sums of products
// have another order.
func nearby(t *testing.T, got, want []float32) {
	t.Helper()
	size := 0.0
	for _, w := range want {
		size = max(size, math.Abs(float64(w)))
	}
	for i, w := range want {
		if !(math.Abs(float64(got[i]-w)) <= 5e-6*size) {
			t.Fatalf("logit %d is %v, want %v", i, got[i], w)
		}
	}
}

// TestHalves checks that weights that are exact in bfloat16, stored in half the memory, give the
// same bits.
func TestHalves(t *testing.T) {
	e := newExample(t, settings["qwen3"])
	for _, w := range e.weights {
		for i, v := range w {
			w[i] = math.Float32frombits(math.Float32bits(v) &^ (1<<16 - 1))
		}
	}
	tokens := sequences(e.m.Network().Vocab)
	caches := e.begin(t, tokens)
	var logits [2][]float32
	for i, halves := range []bool{false, true} {
		n, err := decode.New(e.m, e.weights, decode.Options{Halves: halves})
		if err != nil {
			t.Fatal(err)
		}
		logits[i] = next(t, n, tokens, caches)
	}
	if !slices.Equal(logits[0], logits[1]) {
		t.Error("the logits differ")
	}
}

// nextByGraph reads the tokens after those of begin with a graph for each, and returns the logits
// after the last one.
func (e *example) nextByGraph(
	t testing.TB, tokens [][]int32, caches [][]float32,
) (logits []float32) {
	t.Helper()
	dims := e.m.CacheDims(2, length)
	for at := begun; at < ends; at++ {
		in := append(slices.Clone(e.params),
			testdevice.Upload(t, e.device, []int32{tokens[0][at], tokens[1][at]}, 2, 1))
		for i, c := range caches {
			in = append(in, testdevice.Upload(t, e.device, c, dims[i]...))
		}
		out := testdevice.Evaluate(t, e.device, in, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			params, rest := in[:len(e.params)], in[len(e.params):]
			piece := model.Piece{Tokens: rest[0], Start: graph.Const(g, int32(at)),
				First: engine.Constant(g, first, 2)}
			logits, next := e.m.Decode(params, piece, rest[1:], nil)
			return append([]*graph.Node{logits}, next...)
		})
		logits, caches = out[0], out[1:]
	}
	return logits
}

// TestBFloat16 checks that with products in bfloat16, logits are near those of a graph in that
// precision. Sums in another order change a few roundings, which has less than a quarter of the
// effect of not rounding. With only attention rounded, logits are more than twice as far away.
func TestBFloat16(t *testing.T) {
	for name, s := range settings {
		t.Run(name, func(t *testing.T) {
			e := newExampleOn(t, s, engine.Options{Precision: device.BFloat16})
			tokens := sequences(e.m.Network().Vocab)
			caches := e.begin(t, tokens)
			copied := func() [][]float32 {
				var list [][]float32
				for _, c := range caches {
					list = append(list, slices.Clone(c))
				}
				return list
			}
			want := e.nextByGraph(t, tokens, copied())
			distance := func(o decode.Options) float64 {
				n, err := decode.New(e.m, e.weights, o)
				if err != nil {
					t.Fatal(err)
				}
				sum := 0.0
				for i, v := range next(t, n, tokens, copied()) {
					sum += math.Pow(float64(v-want[i]), 2)
				}
				return math.Sqrt(sum)
			}
			rounded, not := distance(decode.Options{BFloat16: true}), distance(decode.Options{})
			exact := distance(decode.Options{BFloat16: true, Exact: func(string) bool { return true }})
			if !(rounded < not/4) || !(exact > 2*rounded) {
				t.Errorf("the distance to the graph's logits is %.2g, without rounding %.2g, with rounding "+
					"in attention alone %.2g", rounded, not, exact)
			}
		})
	}
}

// TestExact checks that only the operands of products with some weights are not rounded, although
// two weights have the same input.
func TestExact(t *testing.T) {
	e := newExample(t, settings["llama"])
	for _, w := range e.weights { // so that rounding changes only the other operand
		for i, v := range w {
			w[i] = math.Float32frombits(math.Float32bits(v) &^ (1<<16 - 1))
		}
	}
	tokens := sequences(e.m.Network().Vocab)
	var all [][]float32
	for _, exact := range [][]string{{}, {"w1"}, {"w2"}, {"w1", "w2"}} {
		o := decode.Options{BFloat16: true, Exact: func(weight string) bool {
			return slices.Contains(exact, weight[strings.LastIndexByte(weight, '.')+1:])
		}}
		n, err := decode.New(e.m, e.weights, o)
		if err != nil {
			t.Fatal(err)
		}
		logits := next(t, n, tokens, e.begin(t, tokens))
		for i, others := range all {
			if slices.Equal(logits, others) {
				t.Errorf("the logits with %v exact are those of case %d", exact, i)
			}
		}
		all = append(all, logits)
	}
}

// TestQuantizer checks that the quantizer is called for the model's sites, in their order and with
// a row for each sequence, that its results are used, and that its error ends the step.
func TestQuantizer(t *testing.T) {
	e := newExampleOf(t, settings["olmo2"],
		model.Options{Sites: model.Sites{Keys: true, Values: true, Queries: true, Head: true}},
		engine.Options{})
	tokens := sequences(e.m.Network().Vocab)
	caches := e.begin(t, tokens)
	var sites []string
	n, err := decode.New(e.m, e.weights, decode.Options{})
	if err != nil {
		t.Fatal(err)
	}
	place := decode.Positions{Length: length, Start: begun, First: first}
	quantized, err := n.Next([]int32{1, 2}, place, caches,
		func(site model.ActivationSite, x []float32) error {
			sites = append(sites, fmt.Sprint(site.Name, len(x)))
			clear(x)
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, site := range e.m.ActivationSites(2, 1) {
		want = append(want, fmt.Sprint(site.Name, site.Tokens*site.Width))
	}
	if !slices.Equal(sites, want) {
		t.Errorf("the sites are %v, want %v", sites, want)
	}
	if plain, err := n.Next([]int32{1, 2}, place, caches, nil); err != nil ||
		slices.Equal(plain, quantized) {
		t.Errorf("zeros in place of all activations change nothing, %v", err)
	}
	refused := errors.New("refused")
	fails := func(model.ActivationSite, []float32) error { return refused }
	if _, err := n.Next([]int32{1, 2}, place, caches, fails); !errors.Is(err, refused) {
		t.Errorf("the error is %v", err)
	}
}

// TestOperands checks that keys, values, queries and the input of the head are quantized as in a
// graph: a sequence read token by token has the logits of the whole sequence at each position.
func TestOperands(t *testing.T) {
	// A smooth function for each kind, so that rounding errors stay small.
	factors := map[model.SiteKind]float32{model.KindQuery: 0.9, model.KindKey: 0.7,
		model.KindValue: 1.3, model.KindHead: 1.1}
	for name, s := range settings {
		t.Run(name, func(t *testing.T) {
			e := newExampleOf(t, s,
				model.Options{Sites: model.Sites{Keys: true, Values: true, Queries: true, Head: true}},
				engine.Options{})
			tokens := sequences(e.m.Network().Vocab)[0]
			ids := testdevice.Upload(t, e.device, slices.Concat(tokens, tokens[:1]), 1, len(tokens)+1)
			all := testdevice.Evaluate(t, e.device, append(slices.Clone(e.params), ids),
				func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
					return []*graph.Node{e.m.BatchLogits(in[:len(in)-1], in[len(in)-1],
						func(site model.ActivationSite, x *graph.Node) *graph.Node {
							if f := factors[site.Kind]; f != 0 {
								return graph.Sub(graph.MulScalar(x, f), graph.MulScalar(graph.Mul(x, graph.Abs(x)), 0.125))
							}
							return x
						})}
				})[0]
			n, err := decode.New(e.m, e.weights, decode.Options{})
			if err != nil {
				t.Fatal(err)
			}
			var caches [][]float32
			for _, dims := range e.m.CacheDims(1, length) {
				caches = append(caches, make([]float32, dims[1]*dims[2]*dims[3]))
			}
			vocabulary := e.m.Network().Vocab
			for at, token := range tokens {
				logits, err := n.Next([]int32{token},
					decode.Positions{Length: length, Start: at, First: []int32{0}}, caches,
					func(site model.ActivationSite, x []float32) error {
						if f := factors[site.Kind]; f != 0 {
							for i, v := range x {
								x[i] = v*f - 0.125*v*float32(math.Abs(float64(v)))
							}
						}
						return nil
					})
				if err != nil {
					t.Fatal(err)
				}
				nearby(t, logits, all[at*vocabulary:(at+1)*vocabulary])
			}
		})
	}
}

// TestRefuses checks that arguments that do not fit together cause an error and no panic.
func TestRefuses(t *testing.T) {
	e := newExample(t, settings["llama"])
	if _, err := decode.New(e.m, map[string][]float32{}, decode.Options{}); err == nil ||
		!strings.Contains(err.Error(), "parameter embedding has 0 elements, want 888") {
		t.Errorf("without weights: %v", err)
	}
	n, err := decode.New(e.m, e.weights, decode.Options{})
	if err != nil {
		t.Fatal(err)
	}
	caches := make([][]float32, 4)
	for i := range caches {
		caches[i] = make([]float32, 24*length)
	}
	good := decode.Positions{Length: length, Start: 3, First: []int32{1}}
	for name, c := range map[string]struct {
		tokens []int32
		at     decode.Positions
		caches [][]float32
		want   string
	}{
		"no token": {nil, good, caches, "0 tokens for 1 sequences"},
		"full": {[]int32{1},
			decode.Positions{Length: length, Start: length, First: []int32{0}}, caches,
			"at position 16, want one each below position 16"},
		"not begun": {[]int32{1}, decode.Positions{Length: length, Start: 1, First: []int32{2}},
			caches, "sequence 0 begins at position 2, want 0 to 1"},
		"a cache missing": {[]int32{1}, good, caches[1:], "3 caches, want 4"},
		"a small cache": {[]int32{1}, good, [][]float32{nil, nil, nil, nil},
			"a cache of 0 elements, want 384"},
	} {
		if _, err := n.Next(c.tokens, c.at, c.caches, nil); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
	if _, err := n.Next([]int32{-1}, good, caches, nil); err != nil {
		t.Errorf("an id that is none is clamped as in a graph: %v", err)
	}
}

// TestMain fails when a goroutine outlives the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
