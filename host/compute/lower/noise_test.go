package lower_test

import (
	"fmt"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/fakequant"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/host/testing/testquantizer"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// dithered rounds x to multiples of 1/4. In training it first multiplies columns by random signs,
// which both operands of a product share, and from the second step on it adds noise. Evaluation
// rounds to nearest.
type dithered struct{}

func (dithered) Describe() sdk.Description { return sdk.Description{Name: "dithered"} }

func (dithered) Quantize(
	b *program.Builder, x program.Value, site sdk.Site,
) (sdk.Quantized, error) {
	if !site.Training {
		return sdk.Quantized{Value: x.Scale(4).Round().Scale(0.25)}, nil
	}
	columns := site.Shape[1]
	signs := b.RandomBits(site.SharedNoise, 1, columns).Shr(b.ConstUint(31)).Convert(program.Float).
		Scale(2).Shift(-1)
	u := b.RandomBits(site.Noise, site.Shape...).Shr(b.ConstUint(28)).Convert(program.Float).
		Scale(1.0 / 16)
	u = u.Mul(site.Step.Shift(-1).Min(b.Const(1)))
	y := x.Mul(signs)
	return sdk.Quantized{Value: y.Scale(4).Add(u).Floor().Scale(0.25).Mul(signs), Surrogate: y.Abs().
		Le(b.Const(8)).Select(x, u)}, nil
}

// TestNoise checks that programs with random bits give the bits of the reference implementation in
// graphs, row by row and in GPU kernels, without a warning. Two rows are a special case: a key has
// as many words.
func TestNoise(t *testing.T) {
	for name, o := range map[string]engine.Options{
		"graph": {}, "rows": {Precision: device.BFloat16},
		"kernels for GPUs": {Precision: device.BFloat16, Kernels: device.BodyKernels},
	} {
		for _, rows := range []int{1, 2, 64, 300} {
			t.Run(fmt.Sprint(name, " ", rows), func(t *testing.T) {
				const columns = 64
				p, err := sdk.BuildQuantizer(dithered{},
					sdk.Site{Role: sdk.RoleWeight, Name: "w", Shape: []int{rows, columns}})
				if err != nil {
					t.Fatal(err)
				}
				x := randomFloats(rows * columns)
				for i, v := range x { // exact in bfloat16, and so is Q(x)
					x[i] = float32(int(v*8)) / 8
				}
				var wide []float64
				for _, v := range x {
					wide = append(wide, float64(v))
				}
				noise, shared := []uint32{3, 9}, []uint32{2, 77}
				for step := range 3 {
					want, err := reference.Run(p.Program,
						map[string]reference.Tensor{spec.InputX: reference.Floats(wide, rows, columns),
							spec.InputNoise:       reference.Uints(noise, 2),
							spec.InputSharedNoise: reference.Uints(shared, 2),
							spec.InputStep:        reference.Float(float64(step + 1))})
					if err != nil {
						t.Fatal(err)
					}
					o.Warn = func(message string, details ...any) { t.Error(message, details) }
					d := testdevice.OpenCPU(t, o)
					q, err := fakequant.New(p)
					if err != nil {
						t.Fatal(err)
					}
					for _, in := range []string{spec.InputNoise, spec.InputSharedNoise, spec.InputStep} {
						if !q.Takes(in) {
							t.Errorf("the quantizer does not take %s", in)
						}
					}
					inputs := []*engine.Buffer{testdevice.Upload(t, d, x, rows, columns),
						testdevice.Upload(t, d, noise, 2), testdevice.Upload(t, d, shared, 2),
						testdevice.Upload(t, d, []float32{float32(step + 1)})}
					out := testdevice.Evaluate(t, d, inputs, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
						y, back := testquantizer.Quantize(in[0],
							testquantizer.Given{Noise: in[1], SharedNoise: in[2], Step: in[3]}, q)
						return append([]*graph.Node{y}, back(graph.OnesLike(y))...)
					})
					for i, v := range want[spec.OutputValue].Floats {
						if float64(out[0][i]) != v {
							t.Fatalf("step %d: element %d, %v, becomes %v, want %v", step+1, i, x[i], out[0][i], v)
						}
						if out[1][i] != 1 {
							t.Fatalf("step %d: the gradient of element %d is %v, want 1", step+1, i, out[1][i])
						}
					}
					e, err := q.Evaluation()
					if err != nil {
						t.Fatal(err)
					}
					out = testdevice.Evaluate(t, d, inputs[:1],
						func(g *graph.Graph, in []*graph.Node) []*graph.Node {
							y, _ := testquantizer.Quantize(in[0], testquantizer.Given{}, e)
							return []*graph.Node{y}
						})
					if got, _ := reference.Run(p.Evaluate,
						map[string]reference.Tensor{spec.InputX: reference.Floats(wide, rows, columns)}); float64(
						out[0][7]) != got[spec.OutputValue].Floats[7] {
						t.Errorf("evaluation rounds %v to %v, want %v", x[7], out[0][7],
							got[spec.OutputValue].Floats[7])
					}
				}
			})
		}
	}
}
