package step

import (
	"math"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/engine"
)

// clipEpsilon keeps the clip factor finite, as in PyTorch's clip_grad_norm_.
const clipEpsilon = 1e-6

// scalars are the inputs of the update in the order of cage.Scalars, computed in
// float64.
func (k *Kernels) scalars(set Settings, norm float64) []float32 {
	clip := 1.0
	if k.plan.Clip > 0 {
		clip = math.Min(1, k.plan.Clip/(norm+clipEpsilon))
	}
	values := map[string]float64{
		cage.InputStep:     float64(set.Step),
		cage.InputRate:     set.Rate,
		cage.InputNextRate: set.NextRate,
		cage.InputClip:     clip,
		cage.InputLambda:   set.Lambda,
	}
	out := make([]float32, len(cage.Scalars))
	for i, name := range cage.Scalars {
		out[i] = float32(values[name])
	}
	return out
}

// runUpdate replaces parameters and states. While λ_t = 0 it runs the program
// without correction, the same that a run without CAGE uses.
func (k *Kernels) runUpdate(s *State, q *quantizedWeights, grads []*engine.Buffer, set Settings, observed bool, res *Result) error {
	key := updateKey{form: k.form(q, set), statistics: set.Statistics && len(q.at) > 0, observed: observed}
	u, err := k.update(key)
	if err != nil {
		return err
	}
	in, donate := u.inputs(s, q, grads)
	out, err := k.execUpdate(u, in, donate, k.scalars(set, res.GradNorm))
	if err != nil {
		return err
	}
	// What was not given away is freed here.
	for _, i := range u.read {
		s.Params[i].Finalize()
	}
	return k.readMeasures(u.rules, s.replace(out), res)
}

// form is that of the step's correction: off while λ_t = 0.
func (k *Kernels) form(q *quantizedWeights, set Settings) cage.Form {
	if set.Lambda > 0 && len(q.at) > 0 {
		return k.plan.Form
	}
	return cage.Off
}

// readMeasures reads and frees the vectors of the rules' measures.
func (k *Kernels) readMeasures(rules []cage.Rule, out []*engine.Buffer, res *Result) error {
	defer engine.FinalizeAll(out...)
	for i, name := range measured(rules) {
		values, err := engine.Download[float32](out[i])
		if err != nil {
			return err
		}
		list := make([]float64, len(values))
		for j, v := range values {
			list[j] = float64(v)
		}
		k.setMeasure(res, name, list)
	}
	return nil
}

// setMeasure puts a measure of the quantized parameters into the result.
func (k *Kernels) setMeasure(res *Result, name string, list []float64) {
	switch name {
	case cage.OutputErrorNorm2:
		res.ErrorNorm2 = list
	case cage.OutputValueNorm2:
		res.ValueNorm2 = list
	case cage.OutputUncorrected:
		for i, at := range k.plan.quantized() {
			if list[i] != 0 {
				res.Uncorrected = append(res.Uncorrected, k.plan.Rules[at].Name)
			}
		}
	}
}

// measurePareto fills in the stationarity measures that were asked for.
func (k *Kernels) measurePareto(s *State, q *quantizedWeights, grads []*engine.Buffer, batches *Batches, set Settings, res *Result) error {
	if len(q.at) == 0 {
		return nil
	}
	var err error
	if k.plan.FullPrecision {
		if set.FullPareto {
			res.Pareto, err = k.paretoNorm(s, q, pick(grads, q.at), set.ParetoLambda)
		}
		return err
	}
	if set.Pareto {
		if res.ParetoSTE, err = k.paretoNorm(s, q, pick(grads, q.at), set.ParetoLambda); err != nil {
			return err
		}
	}
	if !set.FullPareto {
		return nil
	}
	_, sums, err := k.runGradients(s, q, batches, gradientKey{full: true})
	if err != nil {
		return err
	}
	defer engine.FinalizeAll(sums...)
	// The sum over micro-batches and replicas is the gradient times their number: scale λ
	// instead of the gradient and the norm afterwards.
	n := float64(k.plan.Accumulate * k.dev.Count())
	res.Pareto, err = k.paretoNorm(s, q, pick(sums, q.at), set.ParetoLambda*n)
	res.Pareto /= n
	return err
}

func (k *Kernels) paretoNorm(s *State, q *quantizedWeights, grads []*engine.Buffer, lambda float64) (float64, error) {
	exec, err := k.once("pareto", k.plan.paretoGraph)
	if err != nil {
		return 0, err
	}
	l, err := engine.Upload(k.dev, []float32{float32(lambda)})
	if err != nil {
		return 0, err
	}
	in := append(append([]*engine.Buffer(nil), grads...), pick(s.Params, q.at)...)
	in = append(append(in, q.values...), l)
	defer l.Finalize()
	out, err := exec.Run(in, nil)
	if err != nil {
		return 0, err
	}
	defer engine.FinalizeAll(out...)
	sum, err := sumOf(out[0])
	return math.Sqrt(sum), err
}
