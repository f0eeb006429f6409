package quantize

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/stage"
	"github.com/cage-qat/cage/host/deploy/posttrain"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/internal/testing/golden"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// published has the grid of the published GPTQ: −2^(b−1) … 2^(b−1)−1 in units of 2·max/(2^b−1),
// with the max of a row or a group.
type published struct{ bits, group int }

func (published) Describe() sdk.Description { return sdk.Description{Name: "published"} }

func (p published) Quantize(
	b *program.Builder, x program.Value, site sdk.Site,
) (sdk.Quantized, error) {
	half := math.Ldexp(1, p.bits-1)
	z := p.split(x, site)
	// Rounded once, like the ratio of the largest element to it, which is a tie.
	scale := z.Abs().MaxRow().Div(b.Const(half - 0.5))
	codes := z.Div(scale).Round().Clip(-half, half-1)
	return sdk.Quantized{Value: codes.Mul(scale).Reshape(site.Shape...),
		Codes: codes.Reshape(site.Shape...), Scale: scale,
		Grid: sdk.Integers(-int(half), int(half)-1, max(0, p.group))}, nil
}

func (p published) Unpack(
	_ *program.Builder, codes, scale program.Value, site sdk.Site,
) (program.Value, error) {
	return p.split(codes, site).Mul(scale).Reshape(site.Shape...), nil
}

func (p published) split(x program.Value, site sdk.Site) program.Value {
	if p.group < 0 {
		return x
	}
	return x.Reshape(site.Shape[0], site.RowLen()/p.group, p.group)
}

// TestGolden checks that GPTQ with a grid that a quantizer declares gives the reference values, to
// the precision of binary32. The file's values of rounding have one scale per row, also where GPTQ
// has groups.
func TestGolden(t *testing.T) {
	dev, err := engine.Open(device.CPU, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	tolerance := golden.Tolerance{Abs: 1e-6, Rel: 1e-5}
	golden.Load(t, "../posttrain/testdata/gptq.json").Run(t, func(t *testing.T, c golden.Case) {
		w, x := c.Inputs.Array("w"), c.Inputs.Array("x")
		group := c.Params.Int("group")
		s := posttrain.Settings{Method: posttrain.GPTQ, Damping: c.Params.Float("damp"),
			ActivationOrder: c.Params.Bool("act_order"), Scales: posttrain.AutoScales}
		got := quantizeGolden(t, dev, s, published{c.Params.Int("bits"), group}, w, x)
		c.Expected.CloseWithin(tolerance, "q", toFloat64(got.Value))
		c.Expected.CloseWithin(tolerance, "output_error", []float64{math.Sqrt(got.Report.OutputError)})
		if group < 0 {
			c.Expected.CloseWithin(tolerance, "rtn_output_error",
				[]float64{math.Sqrt(got.Report.RoundingError)})
		}
		rounded := quantizeGolden(t, dev, posttrain.Settings{Method: posttrain.RTN},
			published{c.Params.Int("bits"), -1}, w, x)
		c.Expected.CloseWithin(tolerance, "rtn", toFloat64(rounded.Value))
		c.Expected.CloseWithin(tolerance, "rtn_output_error",
			[]float64{math.Sqrt(rounded.Report.OutputError)})
	})
}

func quantizeGolden(
	t *testing.T, dev *engine.Device, s posttrain.Settings, p published, w, x golden.Array,
) *Quantized {
	t.Helper()
	rows, columns, samples := w.Shape[0], w.Shape[1], x.Shape[0]
	program, err := sdk.BuildQuantizer(p, sdk.Site{Role: sdk.RoleWeight, Name: "w", Shape: w.Shape})
	if err != nil {
		t.Fatal(err)
	}
	gram := make([]float32, columns*columns)
	for i := range gram {
		sum := 0.0
		for k := range samples {
			sum += x.Data[k*columns+i/columns] * x.Data[k*columns+i%columns]
		}
		gram[i] = float32(sum)
	}
	in := &inputs{forward: &forward{dev: dev, compiled: map[string]*stage.Executable{}},
		size: columns, samples: int64(samples)}
	if in.gram, err = engine.Upload(dev, gram, columns, columns); err != nil {
		t.Fatal(err)
	}
	defer in.gram.Finalize()
	defer in.forward.close()
	q, err := newQuantizer(dev, program, w.Float32(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer q.close()
	out, err := quantizeMatrix(t.Context(), s, q,
		architecture.Param{Name: "w", Dims: []int{rows, columns}}, w.Float32(), in)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
