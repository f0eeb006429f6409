package quantize

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/deploy/posttrain"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/linalg"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/spec"
)

// Quantized is a quantized weight Ŵ.
type Quantized struct {
	Report posttrain.Matrix
	Value  []float32 // Ŵ
	// Scale holds the scales of Ŵ's codes; nil if there are no codes, or if they are codes of the
	// rotated weight.
	Scale      []float32
	ScaleShape []int
	// Inputs holds the trained parameters and states of the quantizer, by [step.QuantizerInput].
	Inputs []step.Tensor
}

// quantizeMatrix quantizes the weight w. in describes its inputs; if it is nil, they are unknown,
// and the weight is rounded to nearest.
func quantizeMatrix(ctx context.Context, s posttrain.Settings, q *quantizer, p architecture.Param,
	w []float32, in *inputs) (*Quantized, error) {
	value, answer, err := q.quantize(w)
	if err != nil {
		return nil, err
	}
	if err := checkFinite(value); err != nil {
		return nil, fmt.Errorf("Q(W): %w", err)
	}
	report := posttrain.Matrix{Name: p.Name, Shape: p.Dims, Grid: q.program.Grid}
	out := &Quantized{Report: report, Value: value}
	if q.hasCodes() {
		scale, _ := q.program.Program.Output(spec.OutputScale)
		out.Scale, out.ScaleShape = answer.Scale, q.program.Program.TypeOf(scale).Shape
	}
	if out.Inputs, err = q.given(p.Name); err != nil {
		return nil, err
	}
	if s.Method == posttrain.GPTQ {
		if err := gptq(ctx, s, q, w, answer, in, out); err != nil {
			return nil, err
		}
	}
	if q.block > 1 {
		out.Report.Rotation, out.Scale, out.ScaleShape = q.block, nil, nil
	}
	out.Report.WeightError = distance(w, out.Value)
	if in != nil {
		if out.Report.OutputErrors, err = in.errors(w, out.Value, value); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// gptq replaces the value of out by the result of GPTQ, if that is possible.
func gptq(ctx context.Context, s posttrain.Settings, q *quantizer, w []float32,
	answer posttrain.Answer, in *inputs, out *Quantized) error {
	grid, err := q.grid(answer)
	if err != nil {
		return fmt.Errorf("GPTQ needs the levels of the quantizer: %w; --method rtn works with every "+
			"quantizer", err)
	}
	gram, err := engine.Download[float32](in.gram)
	if err != nil {
		return err
	}
	h := &posttrain.Hessian{Size: in.size, Data: toFloat64(gram)}
	for i := range h.Data {
		h.Data[i] *= 2 / float64(in.samples)
	}
	z := toFloat64(w)
	if err := linalg.Rotate(z, grid.Columns, q.block); err != nil {
		return err
	}
	if err := h.Rotate(q.block); err != nil {
		return err
	}
	switch groups := grid.Groups() > 1; {
	case s.Scales == posttrain.AutoScales && grid.Uniform() && groups && !s.ActivationOrder:
		out.Report.Scales = posttrain.CurrentScales
	case s.Scales == posttrain.AutoScales || !groups:
		out.Report.Scales = posttrain.OriginalScales
	default:
		out.Report.Scales = s.Scales
	}
	var rescale posttrain.Rescale
	if out.Report.Scales == posttrain.CurrentScales {
		rescale = q.rescale(grid)
	}
	result, err := posttrain.Round(ctx, z, h, grid, s, rescale)
	if err != nil {
		return err
	}
	r := &out.Report
	r.Damping, r.Dead, r.Fallback = result.Damping, result.Dead, result.Damping == 0
	if r.Fallback {
		return nil
	}
	if rescale != nil {
		out.Scale = architecture.Float32s(grid.Scales)
	}
	if err := linalg.Rotate(z, grid.Columns, q.block); err != nil { // back
		return err
	}
	out.Value = architecture.Float32s(z)
	return nil
}

// rescale returns a function that computes the scales of a group with the quantizer.
func (q *quantizer) rescale(g *posttrain.Grid) posttrain.Rescale {
	return func(group int, w []float64) ([]float64, error) {
		if q.block > 1 {
			w = slices.Clone(w)
			if err := linalg.Rotate(w, g.Columns, q.block); err != nil {
				return nil, err
			}
		}
		all, err := q.scales(architecture.Float32s(w))
		if err != nil {
			return nil, err
		}
		return lists.Make(g.Rows, func(i int) float64 { return float64(all[i*g.Groups()+group]) }), nil
	}
}

// distance returns ‖a − b‖/‖a‖; 0 if a is 0.
func distance(a, b []float32) float64 {
	sum, all := 0.0, 0.0
	for i := range a {
		d := float64(a[i]) - float64(b[i])
		sum, all = sum+d*d, all+float64(a[i])*float64(a[i])
	}
	if all == 0 {
		return 0
	}
	return math.Sqrt(sum / all)
}

func checkFinite(values []float32) error {
	bad := 0
	for _, v := range values {
		if v-v != 0 {
			bad++
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d numbers are NaN or infinite", bad, len(values))
	}
	return nil
}

func toFloat64(x []float32) []float64 {
	return lists.Map(x, func(v float32) float64 { return float64(v) })
}
