package layerwise

import (
	"fmt"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/deploy/posttrain"
)

// inputs are what the inputs X of a layer say of its weights.
type inputs struct {
	forward *forward
	size    int
	samples int64
	mean    *engine.Buffer // 2/samples·XᵀX, [size, size]
}

func (in *inputs) close() { _ = in.mean.Finalize() }

// hessian is a copy in float64.
func (in *inputs) hessian() (*posttrain.Hessian, error) {
	mean, err := engine.Download[float32](in.mean)
	return &posttrain.Hessian{Size: in.size, Data: toFloat64(mean)}, err
}

// errors compares the outputs of the weight w with those of what became of it, and of what rounding makes of it. The
// products are computed on the device; ‖X·dᵀ‖² is samples/2·tr(d·H·dᵀ).
func (in *inputs) errors(w, quantized, rounded []float32) (*OutputErrors, error) {
	rows := len(w) / in.size
	e, err := in.forward.traces(rows, in.size)
	if err != nil {
		return nil, err
	}
	var args []*engine.Buffer
	defer func() { _ = engine.FinalizeAll(args...) }()
	for _, values := range [][]float32{w, quantized, rounded} {
		b, err := engine.Upload(in.forward.dev, values, rows, in.size)
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
	errors := &OutputErrors{OutputError: sums[0], RoundingError: sums[1]}
	if sums[2] > 0 {
		errors.RelativeError = sums[0] / sums[2]
	}
	return errors, nil
}

// traces compiles d·H·dᵀ of each row of a weight's difference to two others, and of the weight itself.
func (f *forward) traces(rows, columns int) (*engine.Executable, error) {
	key := fmt.Sprintf("output errors of %d by %d", rows, columns)
	if e, ok := f.compiled[key]; ok {
		return e, nil
	}
	var specs []engine.Spec
	for _, name := range []string{"weight", "quantized", "rounded"} {
		specs = append(specs, engine.Spec{Name: name, Shape: shapes.Make(dtypes.Float32, rows, columns)})
	}
	specs = append(specs, engine.Spec{Name: "mean", Shape: shapes.Make(dtypes.Float32, columns, columns)})
	e, err := f.dev.Compile(key, specs, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		trace := func(d *graph.Node) *graph.Node {
			return graph.ReduceSum(graph.Mul(d, graph.DotGeneral(d, []int{1}, nil, in[3], []int{1}, nil)), 1) // H is symmetric
		}
		return []*graph.Node{trace(graph.Sub(in[0], in[1])), trace(graph.Sub(in[0], in[2])), trace(in[0])}
	})
	if err == nil {
		f.compiled[key] = e
	}
	return e, err
}
