// Command kivi quantizes the keys and values of attention to 2 bits or a few more (KIVI, Liu et al.
// 2024, arXiv 2402.02750). Keys have a few channels that are large in all tokens, so that they are
// quantized per channel, in groups of tokens of a sequence; values are not like that, and are
// quantized per token, in groups of the channels of a head. In each group, with the largest and the
// smallest of its numbers (equation 1):
//
//	s = (max − min) / (2^bits − 1)      code = round((x − min) / s)      Q(x) = code·s + min
//
// The paper keeps the last tokens in full precision until they fill a group. Here the last group of
// a sequence is quantized as it is, and so a key may depend on the next tokens of its group, which
// is harmless for measuring a loss with a trained model, and a leak of at most that much in
// training. Where tokens come one by one there are no groups: keys_per = "token" is for that. The
// gradient is the plain straight-through estimator.
package main

import (
	"math"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// What shares a scale of keys.
const (
	keysPerChannel = "channel"
	keysPerToken   = "token"
)

type kivi struct{}

func (kivi) Describe() sdk.Description {
	return sdk.Description{
		Name:    "kivi",
		Version: "1.0.0",
		Doc: "Keys and values of attention between the smallest and the largest of a group: keys " +
			"per channel, values per token.",
		Parameters: []sdk.Parameter{
			sdk.Int("bits", 2, 2, 8, "bits of a code"),
			sdk.Int("group", 32, 1, 65536, "tokens of a channel, or channels of a token and head, that "+
				"share a scale; the last group may be shorter"),
			sdk.Choice("keys_per", keysPerChannel, []string{keysPerChannel, keysPerToken},
				"channel: keys are quantized in groups of tokens, as in the paper; token: as values"),
		},
		Claims: []sdk.Claim{
			{Name: sdk.ClaimAnyZeroCode},
			{Name: sdk.ClaimScaleScope, Value: sdk.ScopeBlock},
			{Name: sdk.ClaimKeyScope, Value: sdk.ScopeColumn,
				When: map[string]any{"keys_per": keysPerChannel}},
		},
	}
}

// leastScale keeps the scale of equal, or nearly equal, numbers away from zero.
const leastScale = 0x1p-126

// Quantize writes Q(x) for keys or values [tokens, heads·size].
func (kivi) Quantize(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
	if site.Role != sdk.RoleKey && site.Role != sdk.RoleValue {
		return sdk.Quantized{}, sdk.Refuse("it is for keys and values, and this is %s: name it in "+
			"[quantizer.keys] or [quantizer.values]", site.Role)
	}
	if len(site.Shape) != 2 || site.Heads < 1 || site.RowLen()%site.Heads != 0 {
		return sdk.Quantized{},
			sdk.Refuse("keys and values are matrices [tokens, heads·size], and this is %v with %d heads",
				site.Shape, site.Heads)
	}
	tokens, channels := site.Shape[0], site.RowLen()
	// groups are cut out of the second axis
	parts := []int{tokens * site.Heads, channels / site.Heads, 1}
	if site.Role == sdk.RoleKey && site.Text("keys_per") == keysPerChannel {
		if site.Context < 2 {
			return sdk.Quantized{}, sdk.Refuse("keys are quantized in groups of the tokens of a sequence, "+
				"and here tokens come one by one, as where text is generated or scored: use keys_per = %q",
				keysPerToken)
		}
		parts = []int{tokens / site.Context, site.Context, channels}
	}
	codes, value, finite := inGroups(b, x.Reshape(parts...), min(site.Int("group"), parts[1]),
		math.Ldexp(1, site.Int("bits"))-1)
	codes, value, finite = codes.Reshape(site.Shape...), value.Reshape(site.Shape...),
		finite.Reshape(site.Shape...)
	return sdk.Quantized{
		Value:       value,
		Surrogate:   finite.Select(x, b.Const(0)),
		Codes:       codes,
		Mask:        finite,
		Homogeneous: true,
	}, nil
}

// inGroups quantizes x [n, length, m] in groups along the second axis, to codes from 0 to top. The
// last group may be shorter.
func inGroups(
	b *program.Builder, x program.Value, group int, top float64,
) (codes, value, finite program.Value) {
	n, length, m := x.Shape()[0], x.Shape()[1], x.Shape()[2]
	whole := length / group * group
	part := func(from, to, group int) [3]program.Value {
		c, v, f := quantize(b, x.At(1, from, to).Reshape(n*(to-from)/group, group, m), top)
		return [3]program.Value{c.Reshape(n, to-from, m), v.Reshape(n, to-from, m),
			f.Reshape(n, to-from, m)}
	}
	out := part(0, whole, group)
	if whole < length {
		for i, rest := range part(whole, length, length-whole) {
			out[i] = out[i].Concatenate(1, rest)
		}
	}
	return out[0], out[1], out[2]
}

// quantize quantizes the groups of x [n, group, m], which are along its second axis. Numbers are
// halved on the way, because the distance of two may be larger than the largest.
func quantize(
	b *program.Builder, x program.Value, top float64,
) (codes, value, finite program.Value) {
	n, m := x.Shape()[0], x.Shape()[2]
	half := x.Scale(0.5)
	low, high := half.ReduceMin(1).Reshape(n, 1, m), half.ReduceMax(1).Reshape(n, 1, m)
	finite = low.IsFinite().And(high.IsFinite()) // otherwise the group becomes NaN
	scale := finite.Select(high.Sub(low).Scale(1/top).Max(b.Const(leastScale)), b.Const(math.NaN()))
	codes = half.Sub(low).Div(scale).Round().Clip(0, top)
	value = codes.Mul(scale).Add(low).Max(low).Min(high).Scale(2)
	finite = finite.Broadcast(x.Shape(), []int{0, 1, 2})
	return finite.Select(codes, b.Const(0)), value, finite
}

func main() { sdk.ServeQuantizer(kivi{}) }
