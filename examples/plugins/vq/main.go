// Command vq is vector quantization: groups of d consecutive entries of a row, over the scale of
// the row or tensor, become the nearest of 2^k rows of a codebook, which moves with what it sees.
// Nothing trains it: each of its rows is a moving average of the groups that went to it (VQ-VAE,
// van den Oord et al. 2017, arXiv 1711.00937, appendix A.1).
//
//	N ← γ·N + (1 − γ)·n           n: how many groups went to each row, over all groups
//	m ← γ·m + (1 − γ)·Σ v         v: the groups that went to it, over all groups
//	e = m / N', N' = ΣN·(N + ε) / (ΣN + 2^k·ε)
//
// The last line is the smoothing of counts of VQ-VAE-2 (Razavi et al. 2019, arXiv 1906.00446;
// VectorQuantizerEMA of Sonnet). Counts are shares, so that neither the size of a batch nor its
// division matters: the mean over micro-batches is exact. The codebook starts from groups of the
// tensor. A group has one code, not each of its entries, so that there are no codes to pack.
package main

import (
	"math"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

type vq struct{}

var (
	_ sdk.Quantizer = vq{}
	_ sdk.Stateful  = vq{}
)

func (vq) Describe() sdk.Description {
	return sdk.Description{
		Name:    "vq",
		Version: "1.0.0",
		Doc: "Vector quantization: groups of a row become rows of a codebook, which is learned by " +
			"moving averages (VQ-VAE).",
		Parameters: []sdk.Parameter{
			sdk.Int("group", 2, 1, 64, "consecutive entries of a row that have one code; divides the row"),
			sdk.Int("bits", 8, 1, 12, "bits of a code: the codebook has 2^bits rows"),
			sdk.Float("decay", 0.99, 0, 0.99999, "decay rate of the moving averages"),
			sdk.Float("epsilon", 1e-8, 0, 1e-5, "what smoothing adds to each share"),
			sdk.Choice("scale", "row", []string{"row", "tensor"}, "what shares a scale, its mean magnitude"),
		},
	}
}

// Names of the state: the share of groups that go to each row of the codebook, and their sum over
// the number of all groups.
const (
	shares = "shares"
	sums   = "sums"
)

// leastScale keeps the scale of a row of zeros away from zero.
const leastScale = 0x1p-126

// InitState starts the codebook with groups of x at equal distances: an odd number of groups, so
// that they do not all stand at the same place of their rows. Where there are too few, the last one
// fills the rest.
func (vq) InitState(b *program.Builder, x program.Value, site sdk.Site) (sdk.State, error) {
	groups, _, err := split(b, x, site)
	if err != nil {
		return nil, err
	}
	n, k := groups.Shape()[0], 1<<site.Int("bits")
	distance := max(1, n/k-(n/k+1)%2)
	at := b.Iota(program.Type{DType: program.Int, Shape: []int{k}}, 0).Mul(b.ConstInt(int32(distance)))
	share := 1 / float64(k)
	return sdk.State{shares: b.Full(share, k), sums: at.Lookup(groups).Scale(share)}, nil
}

// Quantize writes Q(x) for a weight or activation.
func (vq) Quantize(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
	groups, scale, err := split(b, x, site)
	if err != nil {
		return sdk.Quantized{}, err
	}
	share, sum := site.State[shares], site.State[sums]
	k, epsilon := share.Shape()[0], site.Float("epsilon")
	all := share.SumAll()
	smooth := share.Shift(epsilon).Mul(all).Div(all.Shift(float64(k) * epsilon))
	book := sum.Div(smooth.Max(b.Const(leastScale)).Reshape(k, 1))
	codes := groups.Nearest(book)

	part := 1 / float64(groups.Shape()[0])
	decay := site.Float("decay")
	average := func(old, now program.Value) program.Value {
		return old.Scale(decay).Add(now.Scale((1 - decay) * part))
	}
	return sdk.Quantized{
		Value: codes.Lookup(book).Reshape(site.Shape...).Mul(scale),
		Scale: scale,
		Next: sdk.State{
			shares: average(share, codes.ScatterAdd(b.Full(1, groups.Shape()[0]), k)),
			sums:   average(sum, codes.ScatterAdd(groups, k)),
		},
	}, nil
}

// split divides x by its scale and cuts it into groups, [groups, d]. A number that is not finite
// makes all NaN that share its scale; the loss of such a step is not finite either, so that it
// leaves the state as it is.
func split(
	b *program.Builder, x program.Value, site sdk.Site,
) (groups, scale program.Value, err error) {
	d := site.Int("group")
	if site.RowLen()%d != 0 {
		return groups, scale,
			sdk.Refuse("rows of %d cannot be cut into groups of %d: use a group that divides them",
				site.RowLen(), d)
	}
	mean := x.Abs().MeanRow()
	if site.Text("scale") == "tensor" {
		mean = x.Abs().MeanAll()
	}
	scale = mean.IsFinite().Select(mean.Max(b.Const(leastScale)), b.Const(math.NaN()))
	return x.Div(scale).Reshape(int(x.Type().Size())/d, d), scale, nil
}

func main() { sdk.ServeQuantizer(vq{}) }
