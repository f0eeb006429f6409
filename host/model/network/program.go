package network

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// A Task is what a program of a model computes.
type Task int

// The tasks, with the inputs of their programs besides parameters, and their outputs.
const (
	// Predict reads sequences, [Tokens], and returns what [Head] says of their predictions.
	Predict Task = iota
	// Score reads sequences, [Tokens] and [Lengths], and returns [LogProbs] and [Likeliest] of
	// [Targets], given the tokens at [Indices] and before. With [Shape.Parts] it reads [Positions] and
	// [Parts].
	Score
	// Decode reads the next [Tokens] of sequences, [Start], [First], caches ([CacheOf]) and
	// [Projection], and returns [Logits] after the last of these, and the caches with the tokens.
	Decode
	// OneBlock computes a block: from the residual stream, [Stream], and [Segments] to [Stream], or to
	// activations ([Shape.Record]).
	OneBlock
)

// Names of inputs and outputs of programs. Parameters have their own names.
const (
	// int[batch, context+1], or with documents the rows of package dataset; with other tasks than
	// Predict int[batch, context]
	Tokens     = "tokens"
	Losses     = "losses"        // float[batch, context]: weighted losses of the targets, in nats
	Logits     = "logits"        // float[batch·context, vocabulary], of Decode [batch, vocabulary]
	Key        = "key"           // uint[2], the random key of drawn targets
	Divergence = "divergence"    // float[batch, context], with a teacher
	Entropy    = "cross_entropy" // float[batch, context], with a teacher

	Lengths   = "lengths"           // int[batch]: the numbers of tokens before padding
	Indices   = "indices"           // int[targets]: flat indices in Tokens of the tokens before them
	Targets   = "targets"           // int[targets]
	LogProbs  = "log_probabilities" // float[targets]
	Likeliest = "likeliest"         // bool[targets]: no other token is likelier
	// int[batch, context]. A row is a context, which is part 0, and several continuations of it, each
	// of which is a separate part: a token attends to the context and the earlier tokens of its part,
	// and its position is counted in that sequence.
	Positions = "positions"
	Parts     = "parts"

	// the weight of the head, also if it is the embedding, too: it may be stored in another type
	Projection = "projection"

	Start = "start" // int[]: the position of the first of the tokens in the caches
	First = "first" // int[batch]: the position at which each sequence begins

	Stream   = "stream"   // float[batch·context, width]
	Segments = "segments" // int[batch, context]: the document of each token, or [dataset.Padding]

	// the document of each token for quantizers alone
	padding = "padding"
	// tables of the rotary position embedding of a layer
	cosines, sines = "cosines", "sines"
)

const keyCache, valueCache = "cache.keys", "cache.values"

// CacheOf returns the names of the caches of keys and of values of a layer, float[batch, key heads,
// Shape.Cache, head size].
func CacheOf(layer int) []string {
	p := architecture.LayerPrefix(layer)
	return []string{p + keyCache, p + valueCache}
}

// Shape is the shape of a batch, and the task.
type Shape struct {
	Task           Task
	Batch, Context int  // sequences, and the tokens of each that the blocks read
	Documents      bool // rows hold several documents, and to Predict a weight for each target
	Head           Head // of Predict
	Targets        int  // of Score: their number
	Parts          bool // of Score
	Cache          int  // of Decode: tokens that a cache holds
	Layer          int  // of OneBlock
	// Record has the sites whose activations, as products read them, are outputs, by name. OneBlock
	// then returns these alone.
	Record []string
}

// Head says what Predict returns: the losses of a batch; or its logits; or the losses with targets
// that are drawn from the predictions; or, if there is a teacher, the losses of distillation, and
// divergences and cross-entropies.
type Head struct {
	Logits, Sampled bool
	Teacher         Teacher
}

// New returns the program of a model. A parameter that none of q quantizes is an input as products
// read it: in a training, where weights are quantized once for a step, it is Q(W), and the gradient
// with respect to it is that with respect to Q(W).
func New(s architecture.Settings, shape Shape, q Quantizers) (*program.Program, error) {
	s.FillIn()
	s.Context = shape.Context
	n := network{Settings: s, Builder: program.NewSimplifier(s.Kind), batch: shape.Batch,
		quantizers: q, params: map[string]value{}, shared: map[string]value{},
		angles: map[string][2]value{}, more: &results{}, record: shape.Record}
	write := map[Task]func(Shape){Predict: n.predict, Score: n.score, Decode: n.decode,
		OneBlock: n.oneBlock}[shape.Task]
	if write == nil {
		return nil, fmt.Errorf("there is no task %d", shape.Task)
	}
	write(shape)
	for i, name := range n.more.names {
		n.Output(name, n.more.values[i])
	}
	return n.Build()
}

// Gradient returns a program like p, but with the means of losses in place of losses, and with the
// gradients of the mean of [Losses] with respect to those of the named inputs that p has, which
// have the prefix [autodiff.Prefix]. Without names it returns p.
func Gradient(p *program.Program, wrt ...string) (*program.Program, error) {
	if len(wrt) == 0 {
		return p, nil
	}
	noInput := func(name string) bool { return p.Input(name) < 0 }
	wrt = slices.DeleteFunc(slices.Clone(wrt), noInput)
	vjp, err := autodiff.VJP(p, Losses, wrt...)
	if err != nil {
		return nil, err
	}
	b := program.NewSimplifier(p.Name)
	in := transform.Inputs(b, p, nil)[:len(p.Inputs)]
	out := transform.Inline(b, p, in...)
	losses := out[Losses].Type()
	factor := 1 / float64(losses.Size())
	each := b.Const(factor).Broadcast(losses.Shape, nil)
	gradients := transform.Inline(b, vjp, append(in, each)...)
	for _, o := range p.Outputs {
		v := out[o.Name]
		if slices.Contains([]string{Losses, Divergence, Entropy}, o.Name) {
			v = v.SumAll().Scale(factor)
		}
		b.Output(o.Name, v)
	}
	for _, name := range wrt {
		b.Output(autodiff.Prefix+name, gradients[autodiff.Prefix+name])
	}
	return b.Build()
}

// ints declares an input.
func (n *network) ints(name string, dims ...int) value {
	return n.Input(name, program.Type{DType: program.Int, Shape: dims})
}

// declare declares parameters, and the other operands of quantizers. It reports whether all inputs
// could be declared.
func (n *network) declare(params []architecture.Param) bool {
	for _, p := range params {
		n.params[p.Name] = n.Input(p.Name, program.FloatType(p.Dims...))
	}
	for _, in := range n.quantizers.inputs(params) {
		n.params[in.Name] = n.Input(in.Name, in.Type)
	}
	return n.Err() == nil
}

// ids returns tokens, or the nearest that are in the vocabulary.
func (n *network) ids(tokens value) value {
	return tokens.Max(n.ConstInt(0)).Min(n.ConstInt(int32(n.Vocab - 1)))
}

func (n *network) predict(shape Shape) {
	dims := []int{n.batch, n.Context + 1}
	if shape.Documents {
		dims = slices.Insert(dims, 1, dataset.Planes)
	}
	tokens := n.ints(Tokens, dims...)
	declared := n.declare(n.Params())
	teacher, key := n.teacher(shape.Head.Teacher), value{}
	if shape.Head.Sampled {
		key = n.Input(Key, program.Type{DType: program.Uint, Shape: []int{2}})
	}
	if !declared || n.Err() != nil {
		return
	}
	var weights value
	if shape.Documents {
		plane := func(i int) value { return batchPlane(tokens, i) }
		n.shared[Segments] = plane(1).At(1, 0, n.Context)
		weights = plane(2).At(1, 1, n.Context+1).Bitcast(program.Float)
		tokens = plane(0)
	}
	ids := n.ids(tokens)
	flat := func(first int) value {
		return ids.At(1, first, first+n.Context).Reshape(n.batch * n.Context)
	}
	var teacherX, teacherHead value
	if teacher != nil { // first, so that its values are freed before those of the model are kept
		teacher.shared = maps.Clone(n.shared)
		teacherX, teacherHead = teacher.hidden(flat(0))
	}
	x, head := n.hidden(flat(0))
	output := func(name string, losses value) {
		n.Output(name, n.losses(losses, tokens.Eq(ids), weights))
	}
	switch {
	case shape.Head.Logits:
		n.Output(Logits, capped(linear(x, head), n.LogitCap))
	case teacher != nil:
		how := Distilling{shape.Head.Teacher.Distillation, n.LogitCap, teacher.LogitCap}
		losses := how.losses(x, head, flat(1), teacherX, teacherHead)
		for i, name := range []string{Losses, Divergence, Entropy} {
			output(name, losses[i])
		}
	default:
		targets := flat(1)
		if shape.Head.Sampled {
			targets = draw(x, head, key, n.LogitCap)
		}
		output(Losses, crossEntropy(x, head, targets, n.LogitCap))
	}
}

// batchPlane returns a plane of the rows of package dataset, [batch, context+1].
func batchPlane(rows value, i int) value {
	shape := rows.Shape()
	return rows.At(1, i, i+1).Reshape(shape[0], shape[2])
}

// losses returns the losses [N] as [batch, context], times their weights. If an id is outside of
// the vocabulary, all are NaN. weights are absent if all are 1.
func (n *network) losses(losses, valid, weights value) value {
	losses = losses.Reshape(n.batch, n.Context)
	all := valid.Convert(program.Float).MinAll().Gt(n.Const(0))
	losses = all.Select(losses, n.Const(math.NaN()))
	if weights.Valid() {
		losses = losses.Mul(weights)
	}
	return losses
}

func (n *network) score(shape Shape) {
	tokens, lengths := n.ints(Tokens, n.batch, n.Context), n.ints(Lengths, n.batch)
	indices, targets := n.ints(Indices, shape.Targets), n.ints(Targets, shape.Targets)
	if shape.Parts {
		n.shared[Positions] = n.ints(Positions, n.batch, n.Context)
		n.shared[Parts] = n.ints(Parts, n.batch, n.Context)
	}
	if !n.declare(n.Params()) {
		return
	}
	// Padding comes last: no other token attends to it.
	place := n.Iota(program.Type{DType: program.Int, Shape: []int{n.batch, n.Context}}, 1)
	used := place.Lt(lengths.Reshape(n.batch, 1)).Convert(program.Int)
	n.shared[padding] = used.Add(n.ConstInt(dataset.Padding))
	x, head := n.hidden(n.ids(tokens).Reshape(n.batch * n.Context))
	targets = n.ids(targets)
	scores := call(Scores, n.LogitCap, "x w targets", "log_probability column",
		func(in []value) []value {
			logits := capped(linear(in[0], in[1]), n.LogitCap)
			return []value{logProbability(logits, in[2]), logits.ArgMaxRow().Reshape(shape.Targets)}
		}, indices.Lookup(x), head, targets)
	n.Output(LogProbs, scores[0])
	n.Output(Likeliest, scores[1].Eq(targets))
}

func (n *network) decode(shape Shape) {
	tokens := n.ints(Tokens, n.batch, n.Context)
	n.shared[Start], n.shared[First] = n.ints(Start), n.ints(First, n.batch)
	n.cache = shape.Cache
	for layer := range n.Layers {
		for _, name := range CacheOf(layer) {
			n.params[name] = n.Input(name, program.FloatType(n.batch, n.KVHeads, shape.Cache, n.HeadSize))
		}
	}
	projection := n.Input(Projection, program.FloatType(n.Vocab, n.Width))
	if !n.declare(n.Params()) {
		return
	}
	positions, _ := n.positions()
	inside := positions.Reshape(1, n.Context).Ge(n.shared[First].Reshape(n.batch, 1))
	n.shared[padding] = inside.Convert(program.Int).Add(n.ConstInt(dataset.Padding))
	x, _ := n.hidden(n.ids(tokens).Reshape(n.batch * n.Context))
	last := x.Reshape(n.batch, n.Context, n.Width).At(1, n.Context-1, n.Context)
	n.Output(Logits, capped(linear(last.Reshape(n.batch, n.Width), projection), n.LogitCap))
}

func (n *network) oneBlock(shape Shape) {
	x := n.Input(Stream, program.FloatType(n.batch*n.Context, n.Width))
	if shape.Documents {
		n.shared[Segments] = n.ints(Segments, n.batch, n.Context)
	}
	if !n.declare(n.BlockParams(shape.Layer)) {
		return
	}
	n.setAngles(shape.Layer)
	if y := n.block(shape.Layer, x); len(shape.Record) == 0 {
		n.Output(Stream, y)
	}
}

// positions returns those of the rows of a batch, or of a sequence if they are the same in all, and
// the number of positions. They are absent if they are 0, 1, ….
func (n *network) positions() (list value, length int) {
	if at, ok := n.shared[Positions]; ok {
		return at.Reshape(n.batch * n.Context), n.Context
	}
	if start, ok := n.shared[Start]; ok {
		place := n.Iota(program.Type{DType: program.Int, Shape: []int{n.Context}}, 0)
		return place.Add(start), n.cache
	}
	return value{}, n.Context
}
