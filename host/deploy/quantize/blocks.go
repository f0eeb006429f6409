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

// Blocks quantizes a trained language model block by block. It holds at most the parameters of one
// block in memory, in addition to the residual streams of the calibration texts.
//
// Each layer is quantized for the inputs that it will receive from the blocks and layers before it,
// which are already quantized.
type Blocks struct {
	Settings posttrain.Settings
	Device   *engine.Device
	Model    model.Language
	// Weights maps parameters to their quantizer programs; a parameter without an entry is not
	// quantized. Activations maps sites to their quantizer programs, for Batch sequences; at sites
	// without an entry, weights are calibrated with unquantized activations.
	Weights, Activations map[string]spec.Quantizer
	// Values returns the elements of a parameter, which must stay valid until the next call.
	Values func(param string) ([]float32, error)
	// ReadInput returns the value of an input of q, the program of a weight's quantizer: a trained
	// parameter or a state tensor. If ReadInput is nil, they have their initial values.
	ReadInput func(param string, q spec.Quantizer, input string) ([]float32, error)
	// Sequences holds the calibration texts, of Context tokens each. Batch of them are computed at
	// once; Batch must divide their number. If there are none, weights are rounded to nearest, and
	// output errors are unknown.
	Sequences [][]int32
	// Segments holds, for each token of a sequence, the number of its document; see
	// [dataset.Row]. A token attends only to its own document, and padding is not counted. If
	// Segments is nil, each sequence is one document.
	Segments       [][]int32
	Batch, Context int
	// Block is called with the quantized weights of each block in turn.
	Block func(block int, weights []*Quantized) error
}

// gcPercent is the value of GOGC during quantization. There are few allocations, mostly large
// arrays of numbers without pointers, so frequent collections are cheap.
const gcPercent = 10

// Do quantizes block after block. It stops soon after ctx is done. While it runs, garbage is
// collected more often in the whole process.
func (r *Blocks) Do(ctx context.Context) error {
	defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
	forward, err := newForward(r.Device, r.Model, r.Batch, r.Context, r.Activations)
	if err != nil {
		return err
	}
	defer forward.close()
	if len(r.Sequences) > 0 {
		first := r.Model.Params()[0]
		embedding, err := r.read(first.Name)
		if err != nil {
			return err
		}
		if err := forward.embed(embedding, first.Dims[1], r.Sequences, r.Segments); err != nil {
			return err
		}
	}
	for block := range r.Model.Network().Layers {
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

// read returns the elements of a parameter, which must be finite.
func (r *Blocks) read(param string) ([]float32, error) {
	values, err := r.Values(param)
	if err == nil {
		err = checkFinite(values)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", param, err)
	}
	return values, nil
}

func (r *Blocks) block(ctx context.Context, f *forward, block int) (list []*Quantized, err error) {
	params := r.Model.BlockParams(block)
	values := map[string][]float32{}
	for _, p := range params {
		read, err := r.read(p.Name)
		if err != nil {
			return nil, err
		}
		values[p.Name] = slices.Clone(read)
	}
	if len(f.texts) == 0 {
		return r.weights(ctx, nil, params, values, nil)
	}
	if err := f.loadBlock(block, values); err != nil {
		return nil, err
	}
	sites := slices.DeleteFunc(r.Model.BlockSites(block, r.Batch, r.Context),
		func(s model.ActivationSite) bool { return len(s.Feeds) == 0 }) // operands of attention
	groupSize := 1 // number of sites whose inputs are computed in one pass
	if r.Settings.OnePass {
		groupSize = max(1, len(sites))
	}
	for some := range slices.Chunk(sites, groupSize) {
		in, err := f.grams(ctx, some)
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
			list, err = append(list, more...), errors.Join(err, in[i].gram.Finalize())
		}
		if err != nil {
			return nil, err
		}
	}
	return list, f.finishBlock(ctx)
}

// weights quantizes the weights of layers with the same input; in is nil if it is unknown.
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
