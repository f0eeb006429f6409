package model

import (
	"cmp"
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/sdk/program"
)

// An outputHead computes logits from hidden states h [tokens, width].
type outputHead struct {
	w   *graph.Node // [vocabulary, width]
	cap float64     // LogitCap of [architecture.Settings]
}

// linear returns the logits with their gradient.
func (o outputHead) linear(h *graph.Node) *graph.Node { return softcap(linear(h, o.w), o.cap) }

// logits returns the logits without a gradient, which [outputHead.adjoints] computes.
func (o outputHead) logits(h *graph.Node) *graph.Node {
	return softcap(matMulTransposed(h, o.w), o.cap)
}

// adjoints returns the adjoints of h and of the weight, given the logits and their adjoint.
func (o outputHead) adjoints(h, logits, dLogits *graph.Node) (dh, dw *graph.Node) {
	dLogits = softcapAdjoint(logits, dLogits, o.cap)
	return matMul(dLogits, o.w), transposedMatMul(dLogits, h)
}

// softcap returns limit·tanh(x/limit), or x if the limit is 0.
func softcap(x *graph.Node, limit float64) *graph.Node {
	if limit == 0 {
		return x
	}
	return graph.MulScalar(graph.Tanh(graph.MulScalar(x, 1/limit)), limit)
}

// softcapAdjoint returns the adjoint of x, given y = softcap(x, limit) and its adjoint.
func softcapAdjoint(y, dy *graph.Node, limit float64) *graph.Node {
	if limit == 0 {
		return dy
	}
	return graph.Mul(dy, graph.OneMinus(graph.Square(graph.MulScalar(y, 1/limit))))
}

// crossEntropy returns −log softmax(logits)[target] for each row of h [tokens, width], with targets
// [tokens]. In one chunk it saves only the logits, from which the backward pass computes
// probabilities. In n chunks, one after the other, the backward pass recomputes the logits, unlike
// the backward pass of [transformer.Loss].
func crossEntropy(n int, h *graph.Node, head outputHead, targets *graph.Node) *graph.Node {
	targets = graph.InsertAxes(targets, -1)
	if n == 1 {
		logits := head.logits(h)
		losses, logTotal := maskedLosses(logits, targets)
		return engine.Custom(graph.Squeeze(losses, -1), []*graph.Node{h, head.w},
			func(dLosses *graph.Node) []*graph.Node {
				dh, dHead := head.adjoints(h, logits, logitsGradient(logits, logTotal, targets,
					graph.InsertAxes(dLosses, -1)))
				return []*graph.Node{dh, dHead}
			})
	}
	tokens := h.Shape().Dim(0)
	state := []*graph.Node{zeros(h, n, tokens/n, 1)}
	state = overChunks(n, h, head, []*graph.Node{targets}, state, func(c chunk) []*graph.Node {
		losses, _ := maskedLosses(c.head.logits(c.h), c.perToken[0])
		return []*graph.Node{c.put(c.state[0], losses)}
	})
	return engine.Custom(graph.Reshape(state[0], tokens), []*graph.Node{h, head.w},
		func(dLosses *graph.Node) []*graph.Node {
			_, dh, dHead := lossInChunks(n, h, head, targets, graph.InsertAxes(dLosses, -1))
			return []*graph.Node{dh, dHead}
		})
}

// maskedLosses returns −log softmax(logits)[target] and log Σ exp(logits) of each row, [tokens,
// 1] each, for targets [tokens, 1]. It selects the target's logit by comparing its column with all
// columns, which is free where elementwise operations are fused. The logit is bit-identical to that
// in the sum, whereas a recomputed rounded product might differ.
func maskedLosses(logits, targets *graph.Node) (losses, logTotal *graph.Node) {
	highest := graph.ReduceAndKeep(logits, graph.ReduceMax, -1)
	logTotal = graph.Add(graph.Log(graph.ReduceAndKeep(graph.Exp(graph.Sub(logits, highest)),
		graph.ReduceSum, -1)), highest)
	chosen := graph.ReduceAndKeep(graph.Where(isTarget(logits, targets), logits,
		graph.ScalarZero(logits.Graph(), logits.DType())), graph.ReduceSum, -1)
	return graph.Sub(logTotal, chosen), logTotal
}

// logitsGradient returns the gradient with respect to the logits, given the gradient with respect
// to the losses, [tokens, 1]. It is rounded only as a whole, so that it is zero where the
// prediction is certain.
func logitsGradient(logits, logTotal, targets, dLosses *graph.Node) *graph.Node {
	probabilities := graph.Exp(graph.Sub(logits, logTotal))
	d := graph.Where(isTarget(logits, targets), graph.AddScalar(probabilities, -1), probabilities)
	return graph.Mul(d, dLosses)
}

func isTarget(logits, targets *graph.Node) *graph.Node {
	dims := logits.Shape().Dimensions
	columns := graph.Iota(logits.Graph(), shapes.Make(targets.DType(), dims...), 1)
	return graph.Equal(columns, graph.BroadcastToDims(targets, dims...))
}

// clampIDs clamps ids to the vocabulary, because the lookup of an id outside it is undefined: on
// the CPU it ends the process. [transformer.weightLosses] then makes all losses NaN.
func clampIDs(ids *graph.Node, vocabulary int) *graph.Node {
	return graph.ClipScalar(ids, 0, float64(vocabulary-1))
}

// Loss implements [Model]. In the gradient of a mean, the factor of each loss is known in advance.
// So the head is computed chunk by chunk, forward and backward, and only the logits of one chunk
// and their gradient are in memory: for 32,768 tokens and a vocabulary of 32,000 they would take
// 6.3 GB at once.
func (m *transformer) Loss(params []*graph.Node, batch *graph.Node,
	q ActivationQuantizer) *graph.Node {
	in, h := m.readHidden(params, batch, q)
	return m.meanLoss(in, h, m.head(params), m.targets(in))
}

func (m *transformer) meanLoss(in sequences, h *graph.Node, head outputHead,
	targets *graph.Node) *graph.Node {
	tokens := targets.Shape().Dim(0)
	losses, dh, dHead := lossInChunks(m.chunks(tokens), h, head, graph.InsertAxes(targets, -1),
		m.factors(in, h))
	mean := graph.ReduceAllMean(m.weightLosses(graph.Reshape(losses, tokens), in))
	return engine.Custom(mean, []*graph.Node{h, head.w}, func(dy *graph.Node) []*graph.Node {
		return []*graph.Node{graph.Mul(dh, dy), graph.Mul(dHead, dy)}
	})
}

// factors returns the weights of the losses in their mean, [tokens, 1].
func (m *transformer) factors(in sequences, h *graph.Node) *graph.Node {
	tokens := h.Shape().Dim(0)
	factors := graph.BroadcastToDims(graph.Const(h.Graph(), float32(1/float64(tokens))), tokens, 1)
	if in.weights != nil {
		factors = graph.Mul(factors, graph.Reshape(in.weights, tokens, 1))
	}
	return factors
}

// chunks returns the smallest number of equal chunks of tokens that each have at most LossTokens
// tokens or, by default, 1 GiB of logits, with which products are as fast as unchunked ones. If the
// number of tokens has no suitable divisor, the chunks are larger, because products of a few rows
// waste most of a GPU.
func (m *transformer) chunks(tokens int) int {
	limit := cmp.Or(m.LossTokens, max(1<<10, 1<<28/m.Vocab))
	best := 1
	for n := 1; n <= tokens; n++ {
		if tokens%n != 0 {
			continue
		}
		if n > 1 && tokens/n < limit/8 {
			break
		}
		if best = n; tokens/n <= limit {
			break
		}
	}
	return best
}

// lossInChunks returns the losses of [crossEntropy], [tokens, 1], and the gradients with respect to
// h and the head of their sum weighted by factors. h is [tokens, width], targets and factors are
// [tokens, 1]. (The gradient is computed with the loss as in Hsu et al., 2024, "Liger Kernel".)
func lossInChunks(n int, h *graph.Node, head outputHead, targets, factors *graph.Node) (
	losses, dh, dHead *graph.Node) {
	if n == 1 {
		return lossAtOnce(h, head, targets, factors)
	}
	tokens, width := h.Shape().Dim(0), h.Shape().Dim(1)
	state := []*graph.Node{zeros(h, n, tokens/n, 1), zeros(h, n, tokens/n, width),
		zeros(h, head.w.Shape().Dimensions...)}
	state = overChunks(n, h, head, []*graph.Node{targets, factors}, state,
		func(c chunk) []*graph.Node {
			losses, dh, dHead := lossAtOnce(c.h, c.head, c.perToken[0], c.perToken[1])
			return []*graph.Node{c.put(c.state[0], losses), c.put(c.state[1], dh),
				graph.Add(c.state[2], dHead)}
		})
	return graph.Reshape(state[0], tokens, 1), graph.Reshape(state[1], tokens, width), state[2]
}

// A chunk is the input of an iteration of [overChunks]: rows of h and of the nodes perToken, the
// head, and the state. put writes the results of one chunk into those of all chunks, [chunks,
// tokens, …].
type chunk struct {
	h               *graph.Node
	head            outputHead
	perToken, state []*graph.Node
	put             func(all, own *graph.Node) *graph.Node
}

// overChunks calls body n times to update a state, once for each chunk of the rows of h and of the
// nodes in perToken, [tokens, …].
func overChunks(n int, h *graph.Node, of outputHead, perToken, state []*graph.Node,
	body func(c chunk) []*graph.Node) []*graph.Node {
	fixed := []*graph.Node{engine.Operand(of.w)}
	for _, x := range append([]*graph.Node{engine.Operand(h)}, perToken...) {
		fixed = append(fixed, graph.Reshape(x, n, x.Shape().Dim(0)/n, -1))
	}
	return engine.Loop(h.Graph(), n, fixed, state, func(i *graph.Node, fixed,
		state []*graph.Node) []*graph.Node {
		var parts []*graph.Node
		for _, x := range fixed[1:] {
			parts = append(parts, graph.Gather(x, graph.Reshape(i, 1)))
		}
		put := func(all, own *graph.Node) *graph.Node {
			zero := graph.ZerosLike(i)
			return graph.DynamicUpdateSlice(all, graph.InsertAxes(own, 0), []*graph.Node{i, zero, zero})
		}
		w, h := toFloat32(fixed[0]), toFloat32(parts[0])
		return body(chunk{h, outputHead{w, of.cap}, parts[1:], state, put})
	})
}

func zeros(like *graph.Node, dims ...int) *graph.Node {
	return graph.Zeros(like.Graph(), shapes.Make(dtypes.Float32, dims...))
}

func lossAtOnce(h *graph.Node, head outputHead, targets, factors *graph.Node) (
	losses, dh, dHead *graph.Node) {
	logits := head.logits(h)
	losses, dLogits, ok := rowLosses(lower.Kernel, logits, targets, factors)
	if !ok {
		var logTotal *graph.Node
		losses, logTotal = maskedLosses(logits, targets)
		dLogits = logitsGradient(logits, logTotal, targets, factors)
	}
	dh, dHead = head.adjoints(h, logits, dLogits)
	return losses, dh, dHead
}

// rowLosses returns the losses of the rows of logits and the gradients with respect to the logits,
// with one kernel that reads each logit once. ok is false if the device has no kernels, or a row is
// too long for the registers of a kernel's threads.
func rowLosses(call rowsCall, logits, targets,
	factors *graph.Node) (losses, dLogits *graph.Node, ok bool) {
	tokens, vocabulary := logits.Shape().Dim(0), logits.Shape().Dim(1)
	if vocabulary > lower.LargestLoneRow || tokens*vocabulary > math.MaxInt32 {
		return nil, nil, false // too many logits, if [transformer.chunks] found no divisor
	}
	p, err := lossRows(tokens, vocabulary)
	if err != nil {
		panic(err)
	}
	at := lower.InMemory{"gradient": lower.BFloat16}
	kernel := lower.Subject{Kind: lower.Losses, Stored: at, Largest: lower.LargestLoneRow,
		Of: func(rows int) (*program.Program, error) { return lossRows(rows, vocabulary) }}
	out, ok := call(logits.Graph(), kernel, p, tokens, []*graph.Node{logits, targets, factors}, at)
	if !ok {
		return nil, nil, false
	}
	chosen := graph.InsertAxes(chosenLogits(logits, targets), -1)
	return graph.Sub(out["total"], chosen), out["gradient"], true
}

// chosenLogits returns logits[target] of each row, [tokens], for targets [tokens, 1].
func chosenLogits(logits, targets *graph.Node) *graph.Node {
	rows := graph.Iota(logits.Graph(), targets.Shape(), 0)
	return graph.Gather(logits, graph.Concatenate([]*graph.Node{rows, targets}, -1))
}

// lossRows returns the program of [rowLosses]: log Σⱼ exp(logits[i, j]) of each row, and the
// gradient of its loss, multiplied by its factor. Each exponential is computed once, and overwrites
// its logit. If the prediction is certain, exponential and sum are 1 and the gradient is 0. The
// caller looks up the target's logit: to select it as well, the kernel would compare each column
// with the target twice, and hold all columns in registers in between.
func lossRows(rows, columns int) (*program.Program, error) {
	b := program.NewBuilder("loss/rows")
	logits := b.Input("logits", program.FloatType(rows, columns))
	target := b.Input("target", program.Type{DType: program.Int, Shape: []int{rows, 1}})
	factor := b.Input("factor", program.FloatType(rows, 1))
	highest := logits.MaxRow()
	exponentials := logits.Sub(highest).Exp()
	sum := exponentials.ReduceSum(1).Reshape(rows, 1)
	isTarget := b.Iota(program.Type{DType: program.Int, Shape: []int{rows, columns}}, 1).Eq(target)
	b.Output("total", sum.Log().Add(highest))
	b.Output("gradient", exponentials.Mul(factor.Div(sum)).Sub(isTarget.Select(factor, b.Const(0))))
	return b.Build()
}

// A rowsCall computes a program over rows, as [lower.Kernel] does.
type rowsCall func(g *graph.Graph, s lower.Subject, p *program.Program, rows int,
	inputs []*graph.Node, at lower.InMemory) (map[string]*graph.Node, bool)
