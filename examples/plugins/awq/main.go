// Command awq is AWQ, activation-aware weight quantization: columns of a weight that are multiplied
// with large activations are made larger before the weight is rounded, and smaller afterwards, so
// that their errors are smaller. Of the powers α = 0, 1/n, …, (n−1)/n that one is taken with the
// smallest error:
//
//	a    = mean|x|, of each column of the activation in the first batch
//	s    = a^α, divided by √(max s·min s)
//	Q(W) = R(W·s)/s
//	e    = ‖(Q(W) − W)·diag(a)‖
//
// where R rounds to integers with a scale and a zero point for each group of a row. The factors s
// stay as they are. For weights only: activations remain as they are.
//
// The published search measures the error of the layer's output on the calibration texts, ‖(Q(W) −
// W)·xᵀ‖. e is the same for activations whose columns are not correlated, with a mean square in
// proportion to a². The published code searches one s for all weights that share an activation,
// because the norm in front of them becomes smaller by it; here each weight has its own. It then
// searches limits for the weights of a group, which is left out here. A group always has 0 within
// its limits. Values are given in the units of W, without codes. (Lin et al., "AWQ:
// Activation-aware Weight Quantization for LLM Compression and Acceleration", 2023, arXiv
// 2306.00978; auto_scale.py and quantizer.py of llm-awq.)
package main

import (
	"math"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

type awq struct{}

var (
	_ sdk.Quantizer = awq{}
	_ sdk.Stateful  = awq{}
)

func (awq) Describe() sdk.Description {
	return sdk.Description{
		Name:    "awq",
		Version: "1.0.0",
		Doc: "AWQ (Lin et al. 2023): integers in groups, after columns with large activations have " +
			"been made larger. For weights.",
		Parameters: []sdk.Parameter{
			sdk.Int("bits", 4, 2, 8, "bits of a code"),
			sdk.Int("group", 128, 1, 1<<20,
				"entries of a row that share a scale; shorter rows are one group"),
			sdk.Int("points", 20, 1, 20,
				"powers that are tried; 1 tries 0 alone, which is rounding to nearest"),
		},
	}
}

// factors is the name of the state: what the columns are multiplied with. least is the smallest one
// before they are normalised.
const (
	factors = "factors"
	least   = 1e-4
)

// InitState writes the search.
func (awq) InitState(b *program.Builder, x program.Value, site sdk.Site) (sdk.State, error) {
	group, err := groupOf(site)
	if err != nil {
		return nil, err
	}
	a, points := site.Activations.Mean, site.Int("points")
	var best, smallest program.Value
	for i := range points {
		s := a.Pow(b.Const(float64(i) / float64(points))).Max(b.Const(least))
		s = s.Div(s.MaxAll().Mul(s.MinAll()).Sqrt())
		e := round(b, x.Mul(s), site, group).Div(s).Sub(x).Mul(a).Square().SumAll()
		if i == 0 {
			best, smallest = s, e
			continue
		}
		better := e.Lt(smallest)
		best, smallest = better.Select(s, best), better.Select(e, smallest)
	}
	return sdk.State{factors: best}, nil
}

// Quantize writes Q(W).
func (awq) Quantize(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
	group, err := groupOf(site)
	if err != nil {
		return sdk.Quantized{}, err
	}
	s := site.State[factors]
	return sdk.Quantized{Value: round(b, x.Mul(s), site, group).Div(s), Next: site.State}, nil
}

// groupOf is the size of a group.
func groupOf(site sdk.Site) (int, error) {
	if site.Role != sdk.RoleWeight {
		return 0, sdk.Refuse("AWQ is for weights: give activations another quantizer, or none")
	}
	d := site.RowLen()
	group := min(site.Int("group"), d)
	if d%group != 0 {
		return 0, sdk.Refuse("rows of %d cannot be divided into groups of %d", d, group)
	}
	return group, nil
}

// round adds the rounding R, defined above, to the program.
func round(b *program.Builder, x program.Value, site sdk.Site, group int) program.Value {
	zero, top := b.Const(0), math.Exp2(float64(site.Int("bits")))-1
	z := x.Reshape(int(x.Type().Size())/site.RowLen(), site.RowLen()/group, group)
	low, high := z.MinRow().Min(zero), z.MaxRow().Max(zero)
	width := high.Sub(low)
	scale := width.Div(b.Const(top)).Max(b.Const(0x1p-126))
	scale = width.IsFinite().Select(scale, b.Const(math.NaN()))
	origin := low.Neg().Div(scale).Round()
	codes := z.Div(scale).Round().Add(origin).Clip(0, top)
	return codes.Sub(origin).Mul(scale).Reshape(site.Shape...)
}

func main() { sdk.ServeQuantizer(awq{}) }
