package quantize

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/deploy/posttrain"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/sdk/spec"
)

// InputReader reads an input of the program q of a weight's quantizer: a trained parameter or a
// state tensor.
type InputReader func(param string, q spec.Quantizer, input string) ([]float32, error)

// Blocks quantizes a trained language model block by block. It holds at most the parameters of one
// block in memory, in addition to the residual streams of the calibration texts.
//
// Each layer is quantized for the inputs that it will have: those computed by the blocks and layers
// before it, which are already quantized.
type Blocks struct {
	Settings posttrain.Settings
	Device   *engine.Device
	Model    model.Language
	// Weights holds the quantizer programs of parameters; a parameter without an entry is not
	// quantized. Activations holds the quantizer programs of sites, for Batch sequences; at sites
	// without an entry, weights are calibrated with unquantized activations.
	Weights, Activations map[string]spec.Quantizer
	// Values reads the elements of a parameter, which must stay valid until the next call.
	Values func(param string) ([]float32, error)
	// ReadInput reads trained parameters and states of the quantizers of weights; nil means that each
	// has its initial value.
	ReadInput InputReader
	// Sequences are the calibration texts, of Context tokens each. Batch of them are computed at
	// once; Batch must divide their number. Without sequences, weights are rounded to nearest, and
	// errors of outputs are unknown.
	Sequences [][]int32
	// Segments hold, for each token of a sequence, the number of its document; see
	// [model.DocumentRow]. A token attends only to its own document, and padding is not counted.
	// Nil means that each sequence is one document.
	Segments       [][]int32
	Batch, Context int
	// Block is called with the quantized weights of each block in turn.
	Block func(block int, weights []*Quantized) error
}

// gcPercent is GOGC during a run: garbage in percent of the live memory. Allocations are few and
// large arrays of numbers without pointers, so frequent collections are cheap.
const gcPercent = 10

// Do quantizes block after block. It stops soon after ctx is done. While it runs, the process
// collects garbage more often.
func (r *Blocks) Do(ctx context.Context) error {
	defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
	forward, err := newForward(r.Device, r.Model, r.Batch, r.Context, r.Activations)
	if err != nil {
		return err
	}
	defer forward.close()
	if len(r.Sequences) > 0 {
		first := r.Model.Params()[0]
		embedding, err := r.Values(first.Name)
		if err != nil {
			return err
		}
		if err := forward.embed(embedding, first.Dims[1], r.Sequences, r.Segments); err != nil {
			return err
		}
	}
	for block := range r.Model.Blocks() {
		weights, err := r.block(ctx, forward, block)
		if err == nil {
			err = r.Block(block, weights)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// block quantizes the weights of a block.
func (r *Blocks) block(
	ctx context.Context, f *forward, block int,
) (list []*Quantized, err error) {
	params := r.Model.BlockParams(block)
	values := map[string][]float32{}
	for _, p := range params {
		read, err := r.Values(p.Name)
		if err == nil {
			err = checkFinite(read)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
		values[p.Name] = slices.Clone(read)
	}
	if len(f.texts) == 0 {
		return r.weights(ctx, nil, params, values, nil)
	}
	if err := f.loadBlock(block, values); err != nil {
		return nil, err
	}
	sites := r.Model.BlockSites(block, r.Batch, r.Context)
	groupSize := 1 // number of sites whose inputs are computed in one pass
	if r.Settings.OnePass {
		groupSize = max(1, len(sites))
	}
	for some := range slices.Chunk(sites, groupSize) {
		in, err := f.hessians(ctx, some)
		if err != nil {
			return nil, err
		}
		for i, s := range some {
			var more []*Quantized
			if err == nil {
				affected := slices.DeleteFunc(slices.Clone(params), func(p architecture.Param) bool {
					return !slices.Contains(s.Feeds, p.Name)
				})
				more, err = r.weights(ctx, f, affected, values, in[i])
			}
			list, err = append(list, more...), errors.Join(err, in[i].mean.Finalize())
		}
		if err != nil {
			return nil, err
		}
	}
	return list, f.finishBlock(ctx)
}

// weights quantizes the weights of layers with the same input; a nil input is unknown.
func (r *Blocks) weights(ctx context.Context, f *forward, params []architecture.Param,
	values map[string][]float32, in *inputs) (list []*Quantized, err error) {
	for _, p := range params {
		program, ok := r.Weights[p.Name]
		if !ok {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var inputs func(input string) ([]float32, error)
		if r.ReadInput != nil {
			inputs = func(input string) ([]float32, error) { return r.ReadInput(p.Name, program, input) }
		}
		q, err := newQuantizer(r.Device, program, values[p.Name], inputs)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
		out, err := quantizeMatrix(ctx, r.Settings, q, p, values[p.Name], in)
		q.close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
		if f != nil {
			if err := f.replace(p.Name, out.Value); err != nil {
				return nil, err
			}
		}
		delete(values, p.Name) // the replaced value is on the device
		list = append(list, out)
	}
	return list, nil
}
