package quantize

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/fakequant"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/host/compute/stage"
	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/deploy/posttrain"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
	"github.com/cage-qat/cage/sdk/spec"
)

// forward runs a model block by block on the calibration texts. The residual streams before the
// current block are in host memory, and the block's weights are on the device.
type forward struct {
	dev            *engine.Device
	model          model.Language
	batch, context int
	activations    map[string]*fakequant.Quantizer // by site
	texts          []text

	block    int
	weights  stage.Tensors // weights of the current block
	compiled map[string]*stage.Executable
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
		activations: map[string]*fakequant.Quantizer{}, compiled: map[string]*stage.Executable{},
		weights: stage.Tensors{}}
	for site, p := range activations {
		if len(p.Trained) > 0 || len(p.State) > 0 {
			return nil, fmt.Errorf("%s: the quantizer has trained parameters or a state, which only "+
				"training computes: leave activations unquantized", site)
		}
		var err error
		if f.activations[site], err = fakequant.New(p.ForEvaluation()); err != nil {
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
		f.weights[f.inBlock(p.Name)] = b
	}
	return nil
}

func (f *forward) replace(name string, values []float32) error {
	params := f.model.BlockParams(f.block)
	i := slices.IndexFunc(params, func(p architecture.Param) bool { return p.Name == name })
	b, err := engine.Upload(f.dev, values, params[i].Dims...)
	if err == nil {
		err = f.weights[f.inBlock(name)].Finalize()
		f.weights[f.inBlock(name)] = b
	}
	return err
}

// finishBlock computes the residual streams after the current block, and frees its weights.
func (f *forward) finishBlock(ctx context.Context) error {
	e, err := f.compile("outputs", nil)
	if err != nil {
		return err
	}
	for _, t := range f.texts {
		out := stage.Tensors{}
		err := f.run(ctx, e, t, out)
		if err == nil {
			err = engine.DownloadInto(out[network.Stream], t.stream)
		}
		if err := errors.Join(err, out[network.Stream].Finalize()); err != nil {
			return err
		}
	}
	f.free()
	return nil
}

func (f *forward) free() {
	f.weights.Finalize()
	clear(f.weights)
}

func (f *forward) close() {
	f.free()
	for _, e := range f.compiled {
		e.Close()
	}
}

// run runs an executable with the block's weights, a text, and the inputs in more, to which it adds
// the outputs.
func (f *forward) run(ctx context.Context, e *stage.Executable, t text,
	more stage.Tensors) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	count := f.batch * f.context
	in := stage.Tensors{}
	defer in.Finalize()
	in[network.Stream], err = engine.Upload(f.dev, t.stream, count, len(t.stream)/count)
	if err == nil && t.segments != nil {
		in[network.Segments], err = engine.Upload(f.dev, t.segments, f.batch, f.context)
	}
	if err != nil {
		return err
	}
	return e.Run(more, in, f.weights)
}

// grams computes XᵀX of the inputs X at the given sites, in float32 whatever the model's products
// are computed in.
func (f *forward) grams(ctx context.Context, sites []model.ActivationSite) ([]*inputs, error) {
	e, err := f.compile("inputs", sites)
	if err != nil {
		return nil, err
	}
	sums := make([]stage.Tensors, len(sites))
	defer func() {
		for _, t := range sums {
			t.Finalize()
		}
	}()
	for i, s := range sites {
		zeros, err := engine.Zeros(f.dev, s.Width, s.Width)
		if err != nil {
			return nil, err
		}
		sums[i] = stage.Tensors{gram: zeros}
	}
	samples := int64(0)
	for _, of := range f.texts {
		samples += of.tokens
		if err := f.addGrams(ctx, e, of, sites, sums); err != nil {
			return nil, err
		}
	}
	list := make([]*inputs, len(sites))
	for i, s := range sites {
		list[i] = &inputs{f, s.Width, samples, sums[i][gram]} // which owns it
		delete(sums[i], gram)
	}
	return list, nil
}

// addGrams adds those of one text, whose activations e computes.
func (f *forward) addGrams(ctx context.Context, e *stage.Executable, of text,
	sites []model.ActivationSite, sums []stage.Tensors) error {
	activations := stage.Tensors{}
	defer func() { activations.Finalize() }()
	if err := f.run(ctx, e, of, activations); err != nil {
		return err
	}
	for i, s := range sites {
		rows := f.batch * f.context
		add, err := f.stage(stage.Stage{Name: fmt.Sprintf("Gram matrix of %d by %d", rows, s.Width),
			Inputs: []engine.Spec{float32Input("x", false, rows, s.Width),
				float32Input(gram, true, s.Width, s.Width)},
			Write: func(_ *program.Builder, in stage.Values) stage.Values {
				x := in["x"].Transpose(1, 0) // the contracted axis last, which is faster on the CPU
				return stage.Values{gram: in[gram].Add(x.Dot(x, [2][]int{{1}, {1}}, [2][]int{}))}
			}})
		if err == nil {
			err = add.Run(sums[i], stage.Tensors{"x": activations[f.inBlock(s.Name)]})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

const gram = "gram" // the name of a sum

// stage compiles a stage, once for each name.
func (f *forward) stage(s stage.Stage) (e *stage.Executable, err error) {
	e, ok := f.compiled[s.Name]
	if ok {
		return e, nil
	}
	if e, err = s.Compile(f.dev, nil); err == nil {
		f.compiled[s.Name] = e
	}
	return e, err
}

// compile compiles the forward pass of a block. Its outputs are the activations at the given sites,
// or without any the residual stream after the block. One executable serves all blocks with the
// same positions, unless activations are quantized, which may differ between blocks.
func (f *forward) compile(what string, sites []model.ActivationSite) (*stage.Executable, error) {
	s := f.model.Network().LayerRope(f.block)
	key := fmt.Sprint(what, " ", s.RopeKey(), s.LayerWindow(f.block, math.MaxInt))
	for _, s := range sites {
		key += " " + f.inBlock(s.Name)
	}
	if len(f.activations) > 0 {
		key += fmt.Sprint(" of block ", f.block)
	}
	count, segmented := f.batch*f.context, f.texts[0].segments != nil
	specs := []engine.Spec{float32Input(network.Stream, false, count, len(f.texts[0].stream)/count)}
	for _, p := range f.model.BlockParams(f.block) {
		specs = append(specs, float32Input(f.inBlock(p.Name), false, p.Dims...))
	}
	if segmented {
		shape := shapes.Make(shapes.Int32, f.batch, f.context)
		specs = append(specs, engine.Spec{Name: network.Segments, Shape: shape})
	}
	of := model.ProgramOptions{Shape: network.Shape{Task: network.OneBlock, Batch: f.batch,
		Context:   f.context,
		Documents: segmented, Layer: f.block, Record: lists.Map(sites, model.ActivationSite.String)}}
	of.Calls = map[string]*program.Call{}
	for site, q := range f.activations {
		of.Calls[site] = q.Call(false)
	}
	written, err := f.model.Program(of)
	if err != nil {
		return nil, err
	}
	return f.stage(stage.Stage{Name: key, Inputs: specs, Calls: f.model.Calls(of.Shape),
		Write: func(b *program.Builder, in stage.Values) stage.Values {
			args := lists.Map(written.Inputs, func(i program.Input) program.Value {
				return in[f.inBlock(i.Name)]
			})
			out := stage.Values{}
			for name, v := range transform.Inline(b, written, args...) {
				out[f.inBlock(name)] = v
			}
			return out
		}})
}

// inBlock returns the name of a parameter or activation of the current block without the block's
// number, so that executables serve several blocks.
func (f *forward) inBlock(name string) string {
	return strings.TrimPrefix(name, architecture.LayerPrefix(f.block))
}

func float32Input(name string, donated bool, dims ...int) engine.Spec {
	return engine.Spec{Name: name, Shape: shapes.Make(shapes.Float32, dims...), Donated: donated}
}

// inputs holds statistics of the inputs X of a layer.
type inputs struct {
	forward *forward
	size    int
	samples int64
	gram    *engine.Buffer // XᵀX, [size, size]
}

// errors compares the layer's outputs with weight w to those with the other two weights. For a
// difference d of weights, ‖X·dᵀ‖² is tr(d·XᵀX·dᵀ), with a trace per row.
func (in *inputs) errors(w, quantized, rounded []float32) (*posttrain.OutputErrors, error) {
	rows, f := len(w)/in.size, in.forward
	weights, traces := []string{"weight", "quantized", "rounded"}, []string{"error", "rounding", "all"}
	s := stage.Stage{Name: fmt.Sprintf("output errors of %d by %d", rows, in.size),
		Inputs: []engine.Spec{float32Input(gram, false, in.size, in.size)},
		Write: func(_ *program.Builder, in stage.Values) stage.Values {
			trace := func(d program.Value) program.Value { // XᵀX is symmetric
				return d.Mul(d.Dot(in[gram], [2][]int{{1}, {1}}, [2][]int{})).ReduceSum(1)
			}
			w := in[weights[0]]
			return stage.Values{traces[0]: trace(w.Sub(in[weights[1]])),
				traces[1]: trace(w.Sub(in[weights[2]])), traces[2]: trace(w)}
		}}
	for _, name := range weights {
		s.Inputs = append(s.Inputs, float32Input(name, false, rows, in.size))
	}
	e, err := f.stage(s)
	if err != nil {
		return nil, err
	}
	t := stage.Tensors{}
	defer func() { t.Finalize() }()
	for i, values := range [][]float32{w, quantized, rounded} {
		var err error
		if t[weights[i]], err = engine.Upload(f.dev, values, rows, in.size); err != nil {
			return nil, err
		}
	}
	if err := e.Run(t, stage.Tensors{gram: in.gram}); err != nil {
		return nil, err
	}
	var sums [3]float64
	for i, name := range traces {
		perRow, err := engine.Download[float32](t[name])
		if err != nil {
			return nil, err
		}
		for _, v := range perRow {
			sums[i] += float64(v)
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
