package model

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/engine/autodiff"
	"github.com/cage-qat/cage/host/model/architecture"
)

// In attention, features come before positions here, [features, tokens]: the adjoints of the weight, the keys and the
// values are then products without transpositions. Queries and the output are needed in both orders. On GPUs in bfloat16
// positions come first: see [attentionByPosition].
//
// Each head of keys and values serves a group of heads of queries, often a group of one. The scores of a group are one
// product, in which its queries follow each other.

// attention returns the values that each position mixes from those before it and itself, [tokens, width], for x [tokens,
// width] and the fused weight w of queries, keys and values. norms, if any, normalizes queries and keys.
func attention(x, w *graph.Node, norms *queryKeyNorm, r *rope) *graph.Node {
	if r.cached != nil {
		return attentionCached(x, w, norms, r)
	}
	if r.core != nil {
		return attentionByPosition(x, w, norms, r, r.core)
	}
	return attentionByFeature(x, w, norms, r)
}

// attentionByFeature is [attention] on the CPU and in float32.
func attentionByFeature(x, w *graph.Node, norms *queryKeyNorm, r *rope) *graph.Node {
	parts := r.splitWeight(w)
	query := points{r.project(parts[0], x, r.heads), r.project(parts[1], x, r.heads)}
	key := points{r.project(parts[2], x, r.keyHeads), r.project(parts[3], x, r.keyHeads)}
	query, key, normBack := normalizeBoth(norms, query, key, r.normalize)
	query, key = r.turnScaled.apply(query), r.turn.apply(key)

	queries := query.joined() // [heads, size, tokens]
	queriesByPosition := r.group(r.splitTokens(transposed(r.flat(queries))))
	keys := r.splitFeatures(key.joined())
	values := r.splitFeatures(timesTransposed(parts[4], x))

	scores := graph.Add(r.ungroup(times(queriesByPosition, keys)), r.mask) // [batch, heads, queries, keys]
	weights := softmax(scores)
	mixed := r.ungroup(timesTransposed(r.group(weights), values)) // [batch, heads, positions, size]
	value := r.joinTokens(mixed)

	return autodiff.Custom(value, append([]*graph.Node{x, w}, norms.gains()...), func(dy *graph.Node) []*graph.Node {
		dMixed := r.splitTokens(dy)
		dValues := r.sumGroups(times(r.splitFeatures(transposed(dy)), weights))
		// The adjoint of the scores is weights·(dWeights − Σ weights·dWeights); the sum over keys equals one over features.
		sum := graph.ReduceAndKeep(graph.Mul(dMixed, mixed), graph.ReduceSum, -1)
		dScores := graph.Mul(graph.Sub(r.ungroup(times(r.group(dMixed), values)), sum), weights)
		dQueries := r.joinQueries(timesTransposed(keys, r.group(dScores)))
		dKeys := r.joinFeatures(r.sumGroups(times(r.splitFeatures(queries), dScores)))
		dQuery, dKey := r.turnScaled.back(split(dQueries)), r.turn.back(split(dKeys))
		dQuery, dKey, dGains := normBack(dQuery, dKey)
		dProjections := graph.Concatenate([]*graph.Node{r.flat(dQuery.first), r.flat(dQuery.second), r.flat(dKey.first),
			r.flat(dKey.second), r.flat(r.joinFeatures(dValues))}, 0) // [rows of w, tokens]
		dx := transposed(transposedTimes(graph.Concatenate(parts[:], 0), dProjections))
		return append([]*graph.Node{dx, r.joinWeight(times(dProjections, x))}, dGains...)
	})
}

// softmax normalizes over the last axis.
func softmax(x *graph.Node) *graph.Node {
	y, _ := graph.InternalFusedOpCaller(
		func() *graph.Node { return graph.BackendFusedSoftmax(x, x.Rank()-1) },
		func() *graph.Node {
			e := graph.Exp(graph.Sub(x, graph.ReduceAndKeep(x, graph.ReduceMax, -1)))
			return graph.Div(e, graph.ReduceAndKeep(e, graph.ReduceSum, -1))
		},
		false)
	return y
}

// project returns w·xᵀ as [heads, features of a head in w, tokens].
func (r *rope) project(w, x *graph.Node, heads int) *graph.Node {
	return graph.Reshape(timesTransposed(w, x), heads, w.Shape().Dim(0)/heads, r.batch*r.context)
}

// flat joins the first two axes of three: [features, tokens].
func (r *rope) flat(x *graph.Node) *graph.Node { return graph.Reshape(x, -1, r.batch*r.context) }

// splitTokens turns [tokens, width] into [batch, heads, context, size].
func (r *rope) splitTokens(x *graph.Node) *graph.Node {
	return graph.TransposeAllAxes(graph.Reshape(x, r.batch, r.context, r.heads, r.size), 0, 2, 1, 3)
}

// joinTokens is the inverse of splitTokens.
func (r *rope) joinTokens(x *graph.Node) *graph.Node {
	return graph.Reshape(graph.TransposeAllAxes(x, 0, 2, 1, 3), r.batch*r.context, r.heads*r.size)
}

// splitFeatures turns [heads, size, tokens], or [heads·size, tokens], into [batch, heads, size, context].
func (r *rope) splitFeatures(x *graph.Node) *graph.Node {
	return graph.TransposeAllAxes(graph.Reshape(x, -1, r.size, r.batch, r.context), 2, 0, 1, 3)
}

// joinFeatures turns [batch, heads, size, context] into [heads, size, tokens].
func (r *rope) joinFeatures(x *graph.Node) *graph.Node {
	return graph.Reshape(graph.TransposeAllAxes(x, 1, 2, 0, 3), -1, r.size, r.batch*r.context)
}

// groups is the number of heads of queries for one of keys.
func (r *rope) groups() int { return r.heads / r.keyHeads }

// group turns [batch, heads, context, n] into [batch, key heads, group·context, n].
func (r *rope) group(x *graph.Node) *graph.Node {
	if r.groups() == 1 {
		return x
	}
	return graph.Reshape(x, r.batch, r.keyHeads, r.groups()*r.context, -1)
}

// ungroup is the inverse of group.
func (r *rope) ungroup(x *graph.Node) *graph.Node {
	if r.groups() == 1 {
		return x
	}
	return graph.Reshape(x, r.batch, r.heads, r.context, -1)
}

// sumGroups adds up over the heads of each group: [batch, heads, …] becomes [batch, key heads, …].
func (r *rope) sumGroups(x *graph.Node) *graph.Node {
	if r.groups() == 1 {
		return x
	}
	dims := x.Shape().Dimensions
	return graph.ReduceSum(graph.Reshape(x, r.batch, r.keyHeads, r.groups(), dims[2], dims[3]), 2)
}

// joinQueries turns [batch, key heads, size, group·context] into [heads, size, tokens].
func (r *rope) joinQueries(x *graph.Node) *graph.Node {
	if r.groups() == 1 {
		return r.joinFeatures(x)
	}
	x = graph.Reshape(x, r.batch, r.keyHeads, r.size, r.groups(), r.context)
	return graph.Reshape(graph.TransposeAllAxes(x, 1, 3, 2, 0, 4), r.heads, r.size, r.batch*r.context)
}

// An attentionCore returns what each position mixes from the values of those before it and its own, [batch, context,
// heads, size], for queries [batch, context, heads, size] and keys and values [batch, context, key heads, size], all
// float32, and the adjoints of the three from that of the result.
type attentionCore func(query, key, value *graph.Node) (mixed *graph.Node, back func(dMixed *graph.Node) (dQuery, dKey, dValue *graph.Node))

// plainCore keeps the weights of every pair of positions for the backward pass. segments are those of the documents in
// each row, [batch, context], nil for one.
func plainCore(segments *graph.Node) attentionCore {
	return func(query, key, value *graph.Node) (*graph.Node, func(*graph.Node) (*graph.Node, *graph.Node, *graph.Node)) {
		dims := query.Shape().Dimensions
		batch, context, keyHeads, size := dims[0], dims[1], key.Shape().Dim(2), dims[3]
		group := dims[2] / keyHeads
		grouped := func(x *graph.Node) *graph.Node { return graph.Reshape(x, batch, context, keyHeads, group, size) }
		scale := 1 / math.Sqrt(float64(size))

		q := grouped(query)
		products := engine.DotGeneral(q, []int{4}, []int{0, 2}, key, []int{3}, []int{0, 2}) // [batch, key heads, queries, group, keys]
		weights := softmax(masked(graph.MulScalar(products, scale), segments))
		outputs := engine.DotGeneral(weights, []int{4}, []int{0, 1}, value, []int{1}, []int{0, 2}) // [batch, key heads, queries, group, size]
		mixed := graph.TransposeAllAxes(outputs, 0, 2, 1, 3, 4)
		return graph.Reshape(mixed, dims...), func(dMixed *graph.Node) (*graph.Node, *graph.Node, *graph.Node) {
			d := grouped(dMixed)
			dValue := engine.DotGeneral(weights, []int{2, 3}, []int{0, 1}, d, []int{1, 3}, []int{0, 2})
			// See [attention].
			sum := graph.TransposeAllAxes(graph.ReduceAndKeep(graph.Mul(d, mixed), graph.ReduceSum, -1), 0, 2, 1, 3, 4)
			dWeights := engine.DotGeneral(d, []int{4}, []int{0, 2}, value, []int{3}, []int{0, 2})
			dProducts := graph.MulScalar(graph.Mul(graph.Sub(dWeights, sum), weights), scale)
			dQuery := graph.TransposeAllAxes(engine.DotGeneral(dProducts, []int{4}, []int{0, 1}, key, []int{1}, []int{0, 2}), 0, 2, 1, 3, 4)
			dKey := engine.DotGeneral(dProducts, []int{2, 3}, []int{0, 1}, q, []int{1, 3}, []int{0, 2})
			return graph.Reshape(dQuery, dims...), graph.TransposeAllAxes(dKey, 0, 2, 1, 3), graph.TransposeAllAxes(dValue, 0, 2, 1, 3)
		}
	}
}

// masked hides later keys, and those of other documents, from a query in scores [batch, key heads, queries, group, keys].
func masked(scores, segments *graph.Node) *graph.Node {
	g, dims := scores.Graph(), scores.Shape().Dimensions
	square := shapes.Make(dtypes.Int32, 1, 1, dims[2], 1, dims[4])
	seen := graph.LessOrEqual(graph.Iota(g, square, 4), graph.Iota(g, square, 2))
	seen = graph.BroadcastToDims(seen, dims...)
	if segments != nil {
		same := graph.InsertAxes(graph.InsertAxes(sameDocument(segments), 2), 1)
		seen = graph.LogicalAnd(seen, graph.BroadcastToDims(same, dims...))
	}
	hidden := graph.Scalar(g, scores.DType(), math.Inf(-1))
	return graph.Where(seen, scores, graph.BroadcastToDims(hidden, dims...))
}

// fusedCore is one operation of the device forward and one backward, in bfloat16 with sums in float32, which keeps one
// number for each query and head (Dao et al., 2022). It panics with [compute.ErrNotImplemented] where the device has
// none for such operands.
func fusedCore(query, key, value *graph.Node) (*graph.Node, func(*graph.Node) (*graph.Node, *graph.Node, *graph.Node)) {
	config := &compute.ScaledDotProductAttentionConfig{Scale: 1 / math.Sqrt(float64(query.Shape().Dim(3))), Causal: true}
	q, k, v := rounded(query), rounded(key), rounded(value)
	mixed, _ := graph.BackendFusedScaledDotProductAttention(q, k, v, compute.AttentionAxesLayoutBSHD, config)
	return exact(mixed), func(dMixed *graph.Node) (*graph.Node, *graph.Node, *graph.Node) {
		d := autodiff.VJP(mixed, rounded(dMixed), q, k, v)
		return exact(d[0]), exact(d[1]), exact(d[2])
	}
}

func rounded(x *graph.Node) *graph.Node { return graph.ConvertDType(x, dtypes.BFloat16) }

func exact(x *graph.Node) *graph.Node { return graph.ConvertDType(x, dtypes.Float32) }

// chooseCore returns the core of attention by position for the graph's device, and nil where attention by feature is
// better: on the CPU, and in float32. Documents in one row, whose segments are given, have the plain core: the fused one
// hides later keys only.
func chooseCore(g *graph.Graph, s architecture.Settings, context int, segments *graph.Node) attentionCore {
	if engine.OnCPU(g) || !engine.InBFloat16(g) {
		return nil
	}
	if segments != nil {
		return plainCore(segments)
	}
	core, _ := trial{group: s.Heads / s.KVHeads, size: s.HeadSize, context: trialContext(context)}.choose(engine.DeviceOf(g))
	return core
}

// A trial finds out whether the fused core works. Its fields are what the outcome may depend on.
type trial struct{ group, size, context int }

// trialContext is a short context that leaves the same remainder as the given one when it is divided by the sizes of
// tiles.
func trialContext(context int) int {
	const long, tile = 256, 128
	if context <= long {
		return context
	}
	return long + context%tile
}

// errNoFusedAttention is that the device has no fused attention for such a trial.
var errNoFusedAttention = errors.New("the device has no fused attention of this kind")

// choose returns the core that the device is to use, and an error when that is the plain one because the trial of the
// fused one failed. The trial runs once on each device.
func (c trial) choose(d *engine.Device) (attentionCore, error) {
	switch d.Attention() {
	case device.PlainAttention:
		return plainCore(nil), nil
	case device.FusedAttention:
		return fusedCore, nil
	}
	err := d.Try(c, "attention is computed without the device's fused operation, which takes more time and memory", c.run)
	if err != nil {
		return plainCore(nil), err
	}
	return fusedCore, nil
}

// run compares the fused core and its gradient with the plain one on random numbers. The error says that the device does
// not have it, with [errNoFusedAttention], or how far the two are apart.
func (c trial) run(d *engine.Device) error {
	const batch, keyHeads = 2, 2
	heads := keyHeads * c.group
	rng := rand.New(rand.NewPCG(1, 2))
	var in []engine.Input
	for _, input := range []struct {
		name  string
		heads int
	}{{"query", heads}, {"key", keyHeads}, {"value", keyHeads}, {"adjoint", heads}} {
		dims := []int{batch, c.context, input.heads, c.size}
		values := make([]float32, batch*c.context*input.heads*c.size)
		for i := range values {
			values[i] = float32(rng.NormFloat64())
		}
		in = append(in, engine.Input{Spec: engine.Spec{Name: input.name, Shape: shapes.Make(dtypes.Float32, dims...)}, Data: values})
	}
	fused, err := runCore(d, "fused attention", fusedCore, in)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoFusedAttention, err)
	}
	plain, err := runCore(d, "plain attention", plainCore(nil), in)
	if err != nil {
		return err
	}
	for i, what := range []string{"values", "gradient of queries", "gradient of keys", "gradient of values"} {
		// The operands of both are rounded to 8 bits, at different places.
		const most = 0.02
		if apart := relativeDistance(fused[i], plain[i]); !(apart < most) {
			return fmt.Errorf("the %s of fused attention are %.2g from those of plain attention, relative to their norm: want less than %g", what, apart, most)
		}
	}
	return nil
}

// runCore returns the outputs of a core and the adjoints of its inputs.
func runCore(d *engine.Device, name string, core attentionCore, in []engine.Input) ([][]float32, error) {
	return d.Evaluate(name, in, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		mixed, back := core(in[0], in[1], in[2])
		dQuery, dKey, dValue := back(in[3])
		return []*graph.Node{mixed, dQuery, dKey, dValue}
	})
}

// relativeDistance is ‖a − b‖/‖b‖.
func relativeDistance(a, b []float32) float64 {
	difference, norm := 0.0, 0.0
	for i := range b {
		d := float64(a[i]) - float64(b[i])
		difference, norm = difference+d*d, norm+float64(b[i])*float64(b[i])
	}
	return math.Sqrt(difference / norm)
}
