package step

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/stage"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
	"github.com/cage-qat/cage/sdk/spec"
)

func (c *Compiled) setMeasures(m stage.Measures, res *Result) {
	if m[spec.OutputRate] != nil {
		res.Rates = m[spec.OutputRate]
	}
	for name, of := range m {
		if count, ok := strings.CutPrefix(name, cage.CountPrefix); ok {
			if res.Counts == nil {
				res.Counts = map[string]float64{}
			}
			for _, n := range of { // integers, whose sum does not depend on the order
				res.Counts[count] += n
			}
		}
	}
	for _, t := range c.plan.quantizedParams() {
		if e, ok := m[cage.OutputErrorNorm2][t.Name]; ok {
			res.ErrorNorm2 = append(res.ErrorNorm2, e)
			res.ValueNorm2 = append(res.ValueNorm2, m[cage.OutputValueNorm2][t.Name])
		}
		if m[cage.OutputUncorrected][t.Name] != 0 {
			res.Uncorrected = append(res.Uncorrected, t.Name)
		}
	}
}

func (c *Compiled) measurePareto(
	t stage.Tensors, batches *Batches, set Settings, res *Result,
) (err error) {
	if len(c.plan.quantizedParams()) == 0 {
		return nil
	}
	defer func(began time.Time) { res.Overhead = time.Since(began) }(time.Now())
	if set.ParetoSTE && !c.plan.FullPrecision {
		if res.ParetoSTE, err = c.paretoNorm(t, program.KindGradient.Of, set.ParetoLambda); err != nil {
			return err
		}
	}
	if !set.Pareto {
		return nil
	}
	if c.plan.FullPrecision {
		res.Pareto, err = c.paretoNorm(t, program.KindGradient.Of, set.ParetoLambda)
		return err
	}
	if err := c.runGradients(t, batches, set.Step, gradientKind{full: true}, &Result{}); err != nil {
		return err
	}
	// The sum over micro-batches and replicas is the mean gradient times their number. Scale λ by
	// that number, and the norm by its inverse, instead of scaling the gradient.
	n := float64(c.plan.Accumulate * c.dev.Count())
	res.Pareto, err = c.paretoNorm(t, sumName, set.ParetoLambda*n)
	res.Pareto /= n
	return err
}

func (c *Compiled) paretoNorm(
	t stage.Tensors, gradient func(tensor string) string, lambda float64,
) (float64, error) {
	e, err := c.pareto(gradient)
	if err != nil {
		return 0, err
	}
	out := stage.Tensors{}
	defer out.Finalize()
	if out[cage.InputLambda], err = engine.Upload(c.dev, []float32{float32(lambda)}); err != nil {
		return 0, err
	}
	if err := e.Run(out, t); err != nil {
		return 0, err
	}
	shares, err := engine.Download[float32](out[cage.OutputNorm2])
	norm2 := 0.0
	for _, share := range shares {
		norm2 += float64(share)
	}
	return math.Sqrt(norm2), err
}

// pareto returns the executable that maps the gradients, parameters and values of the quantized
// parameters, and λ, to the vector of their contributions to ‖P_λ‖².
func (c *Compiled) pareto(gradient func(tensor string) string) (*stage.Executable, error) {
	p := &c.plan
	specs := []engine.Spec{{Name: cage.InputLambda, Shape: floatShape()}}
	for _, name := range []func(string) string{gradient, program.KindParam.Of, program.KindValue.Of} {
		specs = append(specs, inputSpecs(p.quantizedParams(), name, false)...)
	}
	write := func(b *program.Builder, in stage.Values) stage.Values {
		var shares []program.Value
		for _, t := range p.quantizedParams() {
			i := slices.IndexFunc(p.Rules, func(r cage.Rule) bool { return r.Name == t.Name })
			prog, err := cage.ParetoNorm2(p.Rules[i])
			if err != nil {
				b.Fail(err)
				return nil
			}
			out := transform.Inline(b, prog, in[gradient(t.Name)], in[program.KindParam.Of(t.Name)],
				in[program.KindValue.Of(t.Name)], in[cage.InputLambda])
			shares = append(shares, out[cage.OutputNorm2])
		}
		return stage.Values{cage.OutputNorm2: stage.Vector(shares...)}
	}
	return c.compileOnce("pareto of "+gradient(""), func() stage.Stage {
		return stage.Stage{Name: "pareto", Inputs: specs, Write: write}
	})
}
