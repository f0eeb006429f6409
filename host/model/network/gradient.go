package network

import (
	"slices"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// Gradient returns a program like p, but with the means of losses in place of losses, and with the
// gradients of the mean of [Losses] with respect to some inputs, which have the prefix
// [autodiff.Prefix].
func Gradient(p *program.Program, wrt ...string) (*program.Program, error) {
	vjp, err := autodiff.VJP(p, Losses, wrt...)
	if err != nil {
		return nil, err
	}
	b := program.NewSimplifier(p.Name)
	in := transform.Inputs(b, p, nil)[:len(p.Inputs)]
	out := transform.Inline(b, p, in...)
	losses := out[Losses].Type()
	factor := 1 / float64(losses.Size())
	each := b.Const(factor).Broadcast(losses.Shape, nil)
	gradients := transform.Inline(b, vjp, append(in, each)...)
	for _, o := range p.Outputs {
		v := out[o.Name]
		if slices.Contains([]string{Losses, Divergence, Entropy}, o.Name) {
			v = v.SumAll().Scale(factor)
		}
		b.Output(o.Name, v)
	}
	for _, name := range wrt {
		b.Output(autodiff.Prefix+name, gradients[autodiff.Prefix+name])
	}
	return b.Build()
}
