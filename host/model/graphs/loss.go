package graphs

import (
	"cmp"
	"math"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/host/compute/triton"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
)

// A head computes logits from hidden states [tokens, width]. Calls of a head compute from these a
// few numbers for each token, chunk by chunk of tokens, and only the logits of one chunk and their
// gradient are in memory: for 32,768 tokens and a vocabulary of 32,000 they would take 6.3 GB at
// once.
type head struct {
	w   *graph.Node // [vocabulary, width]
	cap float64     // LogitCap of [architecture.Settings]
}

// logits returns the logits of h, [tokens, vocabulary].
func (o head) logits(h *graph.Node) *graph.Node { return softcap(matMulTransposed(h, o.w), o.cap) }

// adjoints returns the adjoints of h and of the weight, given the logits and their adjoint.
func (o head) adjoints(h, logits, dLogits *graph.Node) (dh, dw *graph.Node) {
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

// maskedLosses returns −log softmax(logits)[target] and log Σ exp(logits) of each row, [tokens,
// 1] each, for targets [tokens, 1]. It selects the target's logit by comparing its column with all
// columns, which is free where elementwise operations are fused. The logit is bit-identical to that
// in the sum, whereas a recomputed rounded product might differ.
func maskedLosses(logits, targets *graph.Node) (losses, logTotal *graph.Node) {
	highest := graph.ReduceAndKeep(logits, graph.ReduceMax, -1)
	logTotal = graph.Add(graph.Log(graph.ReduceAndKeep(graph.Exp(graph.Sub(logits, highest)),
		graph.ReduceSum, -1)), highest)
	chosen := graph.ReduceAndKeep(graph.Where(isTarget(logits, targets), logits,
		graph.Scalar(logits.Graph(), logits.DType(), 0)), graph.ReduceSum, -1)
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

// chunks returns the smallest number of equal chunks of tokens that each have at most so many
// tokens or, if that is 0, 1 GiB of logits, with which products are as fast as unchunked ones. If
// the number of tokens has no suitable divisor, the chunks are larger, because products of a few
// rows waste most of a GPU.
func chunks(tokens, vocabulary, limit int) int {
	limit = cmp.Or(limit, max(1<<10, 1<<28/vocabulary))
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

// A chunk is some of the rows of all tokens.
type chunk struct {
	whole    []*graph.Node // that are the same for all tokens, as operands of products
	perToken []*graph.Node // [tokens, …]
	first    *graph.Node   // the number of the first token, int32[]
}

// overChunks calls body for n chunks of the rows of perToken, one after the other. Results that
// body returns for tokens, [tokens, …], are put together, and those that are the same for all
// tokens, sums, are added up. like are the shapes of all results.
func overChunks(n int, whole, perToken []*graph.Node, like, sums []shapes.Shape,
	body func(c chunk) (results, sums []*graph.Node)) (results, totals []*graph.Node) {
	g, tokens := perToken[0].Graph(), perToken[0].Shape().Dim(0)
	if n == 1 {
		return body(chunk{whole, perToken, graph.Const(g, int32(0))})
	}
	var state []*graph.Node
	for _, s := range like {
		dims := append([]int{n, tokens / n}, s.Dimensions[1:]...)
		state = append(state, graph.Zeros(g, shapes.Make(s.DType, dims...)))
	}
	for _, s := range sums {
		state = append(state, graph.Zeros(g, s))
	}
	fixed := append([]*graph.Node{}, whole...)
	for _, x := range perToken {
		dims := append([]int{n, tokens / n}, x.Shape().Dimensions[1:]...)
		fixed = append(fixed, graph.Reshape(x, dims...))
	}
	state = engine.Loop(g, n, fixed, state, func(i *graph.Node, fixed,
		state []*graph.Node) []*graph.Node {
		c := chunk{whole: lists.Map(fixed[:len(whole)], asOperand),
			first: graph.MulScalar(i, float64(tokens/n))}
		for _, x := range fixed[len(whole):] {
			part := graph.Gather(x, graph.Reshape(i, 1))
			c.perToken = append(c.perToken, asOperand(part))
		}
		results, own := body(c)
		var next []*graph.Node
		for j, r := range results {
			at := append([]*graph.Node{i}, lists.Make(r.Rank(), func(int) *graph.Node {
				return graph.ZerosLike(i)
			})...)
			next = append(next, graph.DynamicUpdateSlice(state[j], graph.InsertAxes(r, 0), at))
		}
		for j, s := range own {
			next = append(next, graph.Add(state[len(results)+j], s))
		}
		return next
	})
	for i, s := range like {
		results = append(results, graph.Reshape(state[i], s.Dimensions...))
	}
	return results, state[len(like):]
}

// asOperand returns an operand of products, which [engine.Operand] has rounded, as floats.
func asOperand(x *graph.Node) *graph.Node {
	if x.DType() == shapes.BFloat16 {
		return toFloat32(x)
	}
	return x
}

func ofTokens(d shapes.DType, tokens int) shapes.Shape { return shapes.Make(d, tokens, 1) }

// column and row convert between [tokens] and [tokens, 1].
func column(x *graph.Node) *graph.Node { return graph.InsertAxes(x, -1) }
func row(x *graph.Node) *graph.Node    { return graph.Reshape(x, x.Shape().Dim(0)) }

// crossEntropy is the rule for −log softmax(logits)[target], [tokens]. Its backward pass computes
// the logits again, unless it is computed with the forward pass.
func crossEntropy(limit int) lower.Rule {
	compute := func(c lower.Call, d *graph.Node) (losses *graph.Node, gradients []*graph.Node) {
		x, w, cap := c.Args[0], c.Args[1], c.Setting.(float64)
		tokens := x.Shape().Dim(0)
		n := chunks(tokens, w.Shape().Dim(0), limit)
		perToken := append(operands(n, x), column(c.Args[2]))
		like, sums := []shapes.Shape{ofTokens(shapes.Float32, tokens)}, []shapes.Shape(nil)
		if d != nil {
			perToken = append(perToken, column(d))
			like, sums = append(like, x.Shape()), append(sums, w.Shape())
		}
		results, totals := overChunks(n, operands(n, w), perToken, like, sums,
			func(c chunk) (results, sums []*graph.Node) {
				of, h := head{c.whole[0], cap}, c.perToken[0]
				if d == nil {
					losses, _ := maskedLosses(of.logits(h), c.perToken[1])
					return []*graph.Node{losses}, nil
				}
				losses, dh, dw := lossAndAdjoints(h, of, c.perToken[1], c.perToken[2])
				return []*graph.Node{losses, dh}, []*graph.Node{dw}
			})
		return row(results[0]), append(results[1:], totals...)
	}
	return lower.Rule{
		Forward: func(c lower.Call) ([]*graph.Node, lower.Back) {
			losses, _ := compute(c, nil)
			return []*graph.Node{losses}, nil
		},
		Both: func(c lower.Call, d []lower.Adjoint) (results, gradients []*graph.Node) {
			losses, gradients := compute(c, d[0].Node())
			return []*graph.Node{losses}, append(gradients, nil)
		},
	}
}

// operands returns nodes in the type in which a loop reads them as operands of products.
func operands(n int, nodes ...*graph.Node) []*graph.Node {
	if n == 1 {
		return nodes
	}
	return lists.Map(nodes, engine.Operand)
}

// lossAndAdjoints returns the losses of tokens, and the gradients with respect to h and the head's
// weight of their sum weighted by factors. h is [tokens, width], targets and factors are [tokens,
// 1]. (The gradient is computed with the loss as in Hsu et al., 2024, "Liger Kernel".)
func lossAndAdjoints(h *graph.Node, of head, targets, factors *graph.Node) (
	losses, dh, dHead *graph.Node) {
	logits := of.logits(h)
	losses, dLogits, ok := rowLosses(lower.Kernel, logits, targets, factors)
	if !ok {
		var logTotal *graph.Node
		losses, logTotal = maskedLosses(logits, targets)
		dLogits = logitsGradient(logits, logTotal, targets, factors)
	}
	dh, dHead = of.adjoints(h, logits, dLogits)
	return losses, dh, dHead
}

// rowLosses returns the losses of the rows of logits and the gradients with respect to the logits,
// with one kernel that reads each logit once. ok is false if the device has no kernels, or a row is
// too long for the registers of a kernel's threads.
func rowLosses(call rowsCall, logits, targets,
	factors *graph.Node) (losses, dLogits *graph.Node, ok bool) {
	tokens, vocabulary := logits.Shape().Dim(0), logits.Shape().Dim(1)
	if vocabulary > triton.LargestLoneRow || tokens*vocabulary > math.MaxInt32 {
		return nil, nil, false // too many logits, if [chunks] found no divisor
	}
	p, err := lossRows(tokens, vocabulary)
	if err != nil {
		panic(err)
	}
	at := lower.InMemory{"gradient": passes.BFloat16}
	kernel := lower.Subject{Kind: lower.Losses, Stored: at, Largest: triton.LargestLoneRow,
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
