package lower_test

import (
	"testing"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/fakequant"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/testing/testquantizer"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// pushing is a quantizer, and its value a block size. It rotates blocks, rounds to multiples of a
// trained step, and has gradients of its own, which depend on the sign of dy.
type pushing int

func (pushing) Describe() sdk.Description { return sdk.Description{Name: "pushing"} }

func (pushing) InitTrained(b *program.Builder, _ program.Value, _ sdk.Site) (sdk.State, error) {
	return sdk.State{"step": b.Const(0.4)}, nil
}

func (q pushing) codes(x program.Value, site sdk.Site) (r, codes program.Value) {
	r = x.Hadamard(int(q)).Div(site.Trained["step"])
	return r, r.Round().Clip(-3, 3)
}

func (q pushing) Quantize(
	_ *program.Builder, x program.Value, site sdk.Site,
) (sdk.Quantized, error) {
	_, codes := q.codes(x, site)
	return sdk.Quantized{Value: codes.Mul(site.Trained["step"]).Hadamard(int(q))}, nil
}

func (q pushing) Backward(
	_ *program.Builder, x, dy program.Value, site sdk.Site,
) (sdk.Gradients, error) {
	r, codes := q.codes(x, site)
	dz := dy.Hadamard(int(q))
	pushed := dz.Mul(dz.Sign().Mul(r.Sub(codes)).Scale(0.5).Shift(1))
	return sdk.Gradients{X: pushed.Hadamard(int(q)),
		Trained: sdk.State{"step": dz.Abs().Mul(codes).SumAll()}}, nil
}

// own returns a quantizer with a backward pass of its own.
func own(t *testing.T, block int, shape ...int) (spec.Quantizer, *fakequant.Quantizer) {
	t.Helper()
	built, err := sdk.BuildQuantizer(pushing(block),
		sdk.Site{Role: sdk.RoleWeight, Name: "w", Shape: shape})
	if err != nil {
		t.Fatal(err)
	}
	q, err := fakequant.New(built)
	if err != nil {
		t.Fatal(err)
	}
	return built, q
}

// TestOwnBackward checks that gradients with respect to x and the trained parameter are those of
// the quantizer's own program.
func TestOwnBackward(t *testing.T) {
	for _, block := range []int{1, 64} {
		built, q := own(t, block, 12, 192)
		x, dy, step := normal(1, 12, 192), normal(2, 12, 192), reference.Float(0.4)
		buffers := []*engine.Buffer{upload(t, x), upload(t, dy), upload(t, step)}
		got := execute(t, buffers, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
			value, back := testquantizer.Quantize(in[0], testquantizer.Given{Trained: in[2:]}, q)
			return append(back(in[1]), value)
		})
		given := map[string]reference.Tensor{spec.InputX: x, spec.TrainedPrefix + "step": step}
		value, err := reference.Run32(built.Program, given)
		if err != nil {
			t.Fatal(err)
		}
		given[spec.InputDY] = dy
		want, err := reference.Run32(built.Backward, given)
		if err != nil {
			t.Fatal(err)
		}
		compare(t, "gradient by x", rotation, download(t, x.Type, got[0]),
			want[autodiff.Prefix+spec.InputX], nil)
		compare(t, "gradient by the step", rotation, download(t, step.Type, got[1]),
			want[autodiff.Prefix+spec.TrainedPrefix+"step"], nil)
		compare(t, "value", rotation, download(t, x.Type, got[2]), value[spec.OutputValue], nil)
	}
}
