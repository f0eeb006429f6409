package quantize

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// Quantizers may compute their initial values from column statistics of both operands of a
// product: of the layer's actual inputs on the calibration texts, and of its weights before
// quantization.

// statistics holds the column statistics of both operands by input name ([spec.ColumnInputs]), each
// with the length of a row.
type statistics map[string][]float32

// calibrate returns the statistics at the sites whose quantizers use them, and computes the states
// of the quantizers of activations.
func (r *Blocks) calibrate(ctx context.Context, f *forward, sites []model.ActivationSite, values map[string][]float32) (map[string]statistics, error) {
	asking := slices.DeleteFunc(slices.Clone(sites), func(s model.ActivationSite) bool {
		return !r.Activations[s.Name].Calibrated() && !slices.ContainsFunc(s.Feeds, func(w string) bool { return r.Weights[w].Calibrated() })
	})
	all, err := f.columns(ctx, asking)
	if err != nil {
		return nil, err
	}
	for _, s := range asking {
		if len(s.Feeds) == 0 {
			return nil, fmt.Errorf("%s: its quantizer takes statistics of a weight that it is multiplied with, and there is none", s.Name)
		}
		all[s.Name].addWeights(s, values)
	}
	for _, s := range sites {
		q := r.Activations[s.Name]
		if len(q.State) == 0 {
			continue
		}
		if r.Trained != nil {
			err = r.loadState(f, s, q)
		} else {
			err = f.initState(ctx, s, q, all[s.Name])
		}
		for i, t := range q.State {
			if err != nil || r.State == nil {
				break
			}
			var values []float32
			if values, err = engine.Download[float32](f.states[s.Name][i]); err == nil {
				err = r.State(s.Name, t.Name, t.Shape, values)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	return all, nil
}

// columns returns the statistics of the activations at some sites.
func (f *forward) columns(ctx context.Context, sites []model.ActivationSite) (map[string]statistics, error) {
	all := map[string]statistics{}
	if len(sites) == 0 {
		return all, nil
	}
	e, err := f.compile("columns", sites, nil, func(at []seen, _ *graph.Node, _ []*graph.Node) (out []*graph.Node) {
		for _, s := range at {
			a := graph.Abs(s.plain)
			out = append(out, graph.ReduceMax(a, 0), graph.ReduceSum(a, 0))
		}
		return out
	})
	if err != nil {
		return nil, err
	}
	largest, sums, tokens := make([][]float32, len(sites)), make([][]float64, len(sites)), 0.0
	for i, s := range sites {
		largest[i], sums[i] = make([]float32, s.Width), make([]float64, s.Width)
	}
	for _, t := range f.texts {
		tokens += float64(t.tokens)
		out, err := f.run(ctx, e, t, nil)
		if err != nil {
			return nil, err
		}
		for i := range sites {
			most, err := engine.Download[float32](out[2*i])
			sum, errSum := engine.Download[float32](out[2*i+1])
			if err := errors.Join(err, errSum); err != nil {
				return nil, errors.Join(err, engine.FinalizeAll(out...))
			}
			for j := range most {
				largest[i][j], sums[i][j] = max(largest[i][j], most[j]), sums[i][j]+float64(sum[j])
			}
		}
		if err := engine.FinalizeAll(out...); err != nil {
			return nil, err
		}
	}
	for i, s := range sites {
		mean := make([]float32, s.Width)
		for j, sum := range sums[i] {
			mean[j] = float32(sum / tokens)
		}
		all[s.Name] = statistics{spec.InputActivationsMax: largest[i], spec.InputActivationsMean: mean}
	}
	return all, nil
}

// addWeights adds the statistics of the weights that a site feeds, over all of their rows.
func (st statistics) addWeights(s model.ActivationSite, values map[string][]float32) {
	largest, mean, sums, rows := make([]float32, s.Width), make([]float32, s.Width), make([]float64, s.Width), 0.0
	for _, w := range s.Feeds {
		for row := range slices.Chunk(values[w], s.Width) {
			rows++
			for j, v := range row {
				a := math.Abs(float64(v))
				largest[j], sums[j] = max(largest[j], float32(a)), sums[j]+a
			}
		}
	}
	for j, sum := range sums {
		mean[j] = float32(sum / rows)
	}
	st[spec.InputWeightsMax], st[spec.InputWeightsMean] = largest, mean
}

// upload uploads the statistics that are inputs of a program for initial values, after x.
func (st statistics) upload(dev *engine.Device, inputs []program.Input) (list []*engine.Buffer, err error) {
	for _, in := range inputs {
		values, ok := st[in.Name]
		if !ok {
			return list, errors.New("its quantizer takes statistics of activations: calibrate with texts, at least one window")
		}
		b, err := engine.Upload(dev, values, in.Type.Shape...)
		if err != nil {
			return list, err
		}
		list = append(list, b)
	}
	return list, nil
}

func (f *forward) initState(ctx context.Context, s model.ActivationSite, q spec.Quantizer, st statistics) error {
	inputs := q.InitState.Inputs[1:]
	columns, err := st.upload(f.dev, inputs)
	defer func() { _ = engine.FinalizeAll(columns...) }()
	if err != nil {
		return err
	}
	var specs []engine.Spec
	for _, in := range inputs {
		specs = append(specs, float32Input(in.Name, false, in.Type.Shape...))
	}
	e, err := f.compile("state", []model.ActivationSite{s}, specs, func(at []seen, _ *graph.Node, more []*graph.Node) []*graph.Node {
		named := lower.Columns{}
		for i, in := range inputs {
			named[in.Name] = more[i]
		}
		return f.activations[s.Name].InitState(at[0].plain, named)
	})
	if err == nil {
		f.states[s.Name], err = f.run(ctx, e, f.texts[0], columns)
	}
	return err
}

func (r *Blocks) loadState(f *forward, s model.ActivationSite, q spec.Quantizer) error {
	for _, t := range q.State {
		values, err := r.Trained(s.Name, q, spec.KeptPrefix+t.Name)
		if err != nil {
			return err
		}
		b, err := engine.Upload(f.dev, values, t.Shape...)
		if err != nil {
			return fmt.Errorf("%s: %w", t.Name, err)
		}
		f.states[s.Name] = append(f.states[s.Name], b)
	}
	return nil
}
