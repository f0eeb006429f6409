package quantize

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/deploy/posttrain"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// forward runs a model block by block on the calibration texts. The residual streams before the
// current block are in host memory, and the block's weights are on the device.
type forward struct {
	dev            *engine.Device
	model          model.Language
	batch, context int
	activations    map[string]lower.Quantizer // by site
	texts          []text

	block    int
	weights  []*engine.Buffer // weights of the current block, in the order of its parameters
	compiled map[string]*engine.Executable
}

// text is a batch of sequences with its current residual stream.
type text struct {
	stream   []float32 // [batch·context, width]
	segments []int32   // document of each token, [batch, context]; nil: each sequence is one
	tokens   int64     // number of tokens that are not padding
}

// newForward prepares a forward pass. activations holds quantizer programs for batch sequences.
func newForward(dev *engine.Device, m model.Language, batch, context int,
	activations map[string]spec.Quantizer) (*forward, error) {
	f := &forward{dev: dev, model: m, batch: batch, context: context,
		activations: map[string]lower.Quantizer{}, compiled: map[string]*engine.Executable{}}
	for site, p := range activations {
		if len(p.Trained) > 0 || len(p.State) > 0 {
			return nil, fmt.Errorf("%s: the quantizer has trained parameters or a state, which only "+
				"training computes: leave activations as they are", site)
		}
		var err error
		if f.activations[site], err = lower.NewQuantizer(p.ForEvaluation()); err != nil {
			return nil, fmt.Errorf("%s: %w", site, err)
		}
	}
	return f, nil
}

// embed looks up the tokens of all sequences in embedding, [vocabulary, width]. If segments is nil,
// each sequence is one document.
func (f *forward) embed(embedding []float32, width int, sequences, segments [][]int32) error {
	vocabulary, scale := len(embedding)/width, float32(f.model.Network().InputScale())
	for at := 0; at < len(sequences); at += f.batch {
		size := f.batch * f.context
		t := text{stream: make([]float32, 0, size*width), tokens: int64(size)}
		for _, tokens := range sequences[at : at+f.batch] {
			for _, id := range tokens {
				if id < 0 || int(id) >= vocabulary {
					return fmt.Errorf("token %d is outside the model's vocabulary of %d", id, vocabulary)
				}
				for _, v := range embedding[int(id)*width : (int(id)+1)*width] {
					t.stream = append(t.stream, v*scale)
				}
			}
		}
		if segments != nil {
			t.segments = slices.Concat(segments[at : at+f.batch]...)
			for _, s := range t.segments {
				if s == dataset.Padding {
					t.tokens--
				}
			}
		}
		f.texts = append(f.texts, t)
	}
	return nil
}

func (f *forward) loadBlock(block int, values map[string][]float32) error {
	f.block = block
	for _, p := range f.model.BlockParams(block) {
		b, err := engine.Upload(f.dev, values[p.Name], p.Dims...)
		if err != nil {
			return err
		}
		f.weights = append(f.weights, b)
	}
	return nil
}

func (f *forward) replace(name string, values []float32) error {
	params := f.model.BlockParams(f.block)
	i := slices.IndexFunc(params, func(p architecture.Param) bool { return p.Name == name })
	b, err := engine.Upload(f.dev, values, params[i].Dims...)
	if err == nil {
		err = f.weights[i].Finalize()
		f.weights[i] = b
	}
	return err
}

// finishBlock computes the residual streams after the current block, and frees its weights.
func (f *forward) finishBlock(ctx context.Context) error {
	output := func(_ []*graph.Node, y *graph.Node, _ []*graph.Node) []*graph.Node {
		return []*graph.Node{y}
	}
	e, err := f.compile("outputs", nil, nil, output)
	if err != nil {
		return err
	}
	for _, t := range f.texts {
		out, err := f.run(ctx, e, t, nil)
		if err == nil {
			err = engine.DownloadInto(out[0], t.stream)
		}
		if err := errors.Join(err, engine.FinalizeAll(out...)); err != nil {
			return err
		}
	}
	return f.free()
}

func (f *forward) free() error {
	err := engine.FinalizeAll(f.weights...)
	f.weights = nil
	return err
}

func (f *forward) close() {
	_ = f.free()
	for _, e := range f.compiled {
		e.Close()
	}
}

// run runs an executable with the block's weights, a text, and further inputs. It consumes the
// donated buffers.
func (f *forward) run(ctx context.Context, e *engine.Executable, t text, more []*engine.Buffer,
	donated ...*engine.Buffer) ([]*engine.Buffer, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	rows := f.batch * f.context
	x, err := engine.Upload(f.dev, t.stream, rows, len(t.stream)/rows)
	if err != nil {
		return nil, err
	}
	defer x.Finalize()
	in := append(slices.Clone(f.weights), x)
	if t.segments != nil {
		segments, err := engine.Upload(f.dev, t.segments, f.batch, f.context)
		if err != nil {
			return nil, err
		}
		defer segments.Finalize()
		in = append(in, segments)
	}
	in = append(in, more...)
	donate := append(make([]bool, len(in)), slices.Repeat([]bool{true}, len(donated))...)
	return e.Run(append(in, donated...), donate)
}

// hessians computes the Hessians of the inputs at the given sites.
func (f *forward) hessians(ctx context.Context, sites []model.ActivationSite) ([]*inputs, error) {
	specs := []engine.Spec{float32Input("keep", false), float32Input("add", false)}
	for _, s := range sites {
		specs = append(specs, float32Input("sum of "+s.Name, true, s.Width, s.Width))
	}
	e, err := f.compile("inputs", sites, specs,
		func(at []*graph.Node, _ *graph.Node, more []*graph.Node) (sums []*graph.Node) {
			for i, x := range at {
				axis := 0                    // axis of the tokens
				if engine.OnCPU(x.Graph()) { // the CPU is faster if the contracted axis is last
					x, axis = graph.Transpose(x, 0, 1), 1
				}
				gram := graph.DotGeneral(x, []int{axis}, nil, x, []int{axis}, nil)
				sum := graph.Add(graph.Mul(more[2+i], more[0]), graph.Mul(gram, more[1]))
				sums = append(sums, sum)
			}
			return sums
		})
	if err != nil {
		return nil, err
	}
	sums := make([]*engine.Buffer, len(sites))
	defer func() { _ = engine.FinalizeAll(sums...) }()
	for i, s := range sites {
		if sums[i], err = engine.Zeros(f.dev, s.Width, s.Width); err != nil {
			return nil, err
		}
	}
	tokens := int64(0)
	for _, t := range f.texts {
		// Extend the running mean over the previous tokens to this batch.
		before := tokens
		tokens += t.tokens
		keep, err := engine.Upload(f.dev, []float32{float32(float64(before) / float64(tokens))})
		if err != nil {
			return nil, err
		}
		add, err := engine.Upload(f.dev, []float32{float32(2 / float64(tokens))})
		if err != nil {
			return nil, errors.Join(err, keep.Finalize())
		}
		next, err := f.run(ctx, e, t, []*engine.Buffer{keep, add}, sums...)
		if err := errors.Join(err, engine.FinalizeAll(keep, add)); err != nil {
			return nil, err
		}
		sums = next
	}
	list := make([]*inputs, len(sites))
	for i, s := range sites {
		list[i] = &inputs{f, s.Width, tokens, sums[i]}
	}
	sums = nil // owned by list now
	return list, nil
}

// compile compiles the forward pass of a block, followed by the graph that build makes from the
// activations at the given sites (at), the block's output y, and further inputs. One executable
// serves all blocks with the same positions, unless activations are quantized, which may differ
// between blocks.
func (f *forward) compile(what string, sites []model.ActivationSite, more []engine.Spec,
	build func(at []*graph.Node, y *graph.Node, more []*graph.Node) []*graph.Node,
) (*engine.Executable, error) {
	s := f.model.Network().LayerRope(f.block)
	key := fmt.Sprint(what, " ", s.RopeKey(), s.LayerWindow(f.block, math.MaxInt))
	for _, s := range sites {
		all := f.model.BlockSites(f.block, f.batch, f.context)
		key += fmt.Sprint(" ", indexOf(all, s))
	}
	if len(f.activations) > 0 {
		key += fmt.Sprint(" of block ", f.block)
	}
	if e, ok := f.compiled[key]; ok {
		return e, nil
	}
	var specs []engine.Spec
	for _, p := range f.model.BlockParams(f.block) {
		specs = append(specs, float32Input(p.Name, false, p.Dims...))
	}
	rows, segmented := f.batch*f.context, f.texts[0].segments != nil
	specs = append(specs, float32Input("x", false, rows, len(f.texts[0].stream)/rows))
	if segmented {
		shape := shapes.Make(dtypes.Int32, f.batch, f.context)
		specs = append(specs, engine.Spec{Name: "segments", Shape: shape})
	}
	block := func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		weights, x, more := in[:len(f.weights)], in[len(f.weights)], in[len(f.weights)+1:]
		var segments *graph.Node
		if segmented {
			segments, more = more[0], more[1:]
		}
		out := f.blockOutputs(weights, x, segments, sites)
		at := lists.Map(sites, func(s model.ActivationSite) *graph.Node { return out[s.Name] })
		return build(at, out[network.Stream], more)
	}
	e, err := f.dev.Compile(key, append(specs, more...), block)
	if err == nil {
		f.compiled[key] = e
	}
	return e, err
}

// blockOutputs computes the residual stream after the current block or, if there are sites, their
// activations by name.
func (f *forward) blockOutputs(weights []*graph.Node, x, segments *graph.Node,
	sites []model.ActivationSite) map[string]*graph.Node {
	of := model.Pass{Inputs: map[string]*graph.Node{network.Stream: x, network.Segments: segments}}
	of.Shape = network.Shape{Task: network.OneBlock, Batch: f.batch, Context: f.context,
		Documents: segments != nil, Layer: f.block, Record: lists.Map(sites, model.ActivationSite.String)}
	of.Calls = map[string]*program.Call{}
	for site, q := range f.activations {
		of.Calls[site] = q.Call(false)
	}
	for i, p := range f.model.BlockParams(f.block) {
		of.Inputs[p.Name] = weights[i]
	}
	out, _ := f.model.Compute(of, nil)
	return out
}

func indexOf(sites []model.ActivationSite, site model.ActivationSite) int {
	same := func(s model.ActivationSite) bool { return s.Name == site.Name }
	return slices.IndexFunc(sites, same)
}

func float32Input(name string, donated bool, dims ...int) engine.Spec {
	return engine.Spec{Name: name, Shape: shapes.Make(dtypes.Float32, dims...), Donated: donated}
}

// inputs holds statistics of the inputs X of a layer.
type inputs struct {
	forward *forward
	size    int
	samples int64
	mean    *engine.Buffer // 2/samples·XᵀX, [size, size]
}

// errors compares the layer's outputs with weight w to those with the other two weights. For a
// difference d of weights, ‖X·dᵀ‖² is samples/2·tr(d·H·dᵀ), with a trace per row.
func (in *inputs) errors(w, quantized, rounded []float32) (*posttrain.OutputErrors, error) {
	rows, f := len(w)/in.size, in.forward
	key := fmt.Sprintf("output errors of %d by %d", rows, in.size)
	e, ok := f.compiled[key]
	if !ok {
		var specs []engine.Spec
		for _, name := range []string{"weight", "quantized", "rounded"} {
			specs = append(specs, float32Input(name, false, rows, in.size))
		}
		specs = append(specs, float32Input("mean", false, in.size, in.size))
		traces := func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
			trace := func(d *graph.Node) *graph.Node { // H is symmetric
				h := graph.DotGeneral(d, []int{1}, nil, in[3], []int{1}, nil)
				return graph.ReduceSum(graph.Mul(d, h), 1)
			}
			return []*graph.Node{
				trace(graph.Sub(in[0], in[1])), trace(graph.Sub(in[0], in[2])), trace(in[0]),
			}
		}
		var err error
		if e, err = f.dev.Compile(key, specs, traces); err != nil {
			return nil, err
		}
		f.compiled[key] = e
	}
	var args []*engine.Buffer
	defer func() { _ = engine.FinalizeAll(args...) }()
	for _, values := range [][]float32{w, quantized, rounded} {
		b, err := engine.Upload(f.dev, values, rows, in.size)
		if err != nil {
			return nil, err
		}
		args = append(args, b)
	}
	out, err := e.Run(append(args[:3:3], in.mean), nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = engine.FinalizeAll(out...) }()
	var sums [3]float64
	for i, b := range out {
		perRow, err := engine.Download[float32](b)
		if err != nil {
			return nil, err
		}
		for _, v := range perRow {
			sums[i] += float64(v) * float64(in.samples) / 2
		}
	}
	if slices.ContainsFunc(sums[:], func(v float64) bool { return v-v != 0 }) {
		return nil, errors.New("the outputs of the layer are NaN or too large")
	}
	found := &posttrain.OutputErrors{OutputError: sums[0], RoundingError: sums[1]}
	if sums[2] > 0 {
		found.RelativeError = sums[0] / sums[2]
	}
	return found, nil
}
