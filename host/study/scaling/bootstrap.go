package scaling

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/cage-qat/cage/internal/lists"
)

// bootstrap replaces the intervals of a fit by percentiles over bootstrap replicates, and returns
// the replicates' parameters. Each replicate has its own random stream, so the result does not
// depend on the number of workers.
func (f *fitting) bootstrap(
	ctx context.Context, fit *Fit, all []minimum, k identification,
) ([][]float64, error) {
	const maxStarts, replicateSteps = 3, 400
	var starts [][]float64 // the best distinct minima
	last := math.Inf(-1)
	for _, m := range all {
		if len(starts) < maxStarts && m.cost > last+1e-3*math.Abs(last) || len(starts) == 0 {
			starts, last = append(starts, m.x), m.cost
		}
	}
	n := len(f.points)
	inflation := math.Sqrt(float64(n) / float64(max(1, f.degreesOfFreedom())))
	samples := make([][]float64, f.options.Bootstrap)
	err := parallel(ctx, len(samples), func(ctx context.Context, i int) {
		random := rand.New(rand.NewPCG(f.options.Seed, uint64(i)))
		m := f.model // with log-losses from resampled residuals
		m.logLoss = make([]float64, n)
		for i, r := range fit.Residuals {
			m.logLoss[i] = f.model.logLoss[i] - r + inflation*fit.Residuals[random.IntN(n)]
		}
		p := m.problem(f.options.Huber)
		best := minimum{cost: math.Inf(1)}
		for _, start := range starts {
			if found := p.minimize(ctx, start, replicateSteps); found.cost < best.cost || best.x == nil {
				best = found
			}
		}
		samples[i] = m.full(best.x)
	})
	if err != nil {
		return nil, err
	}
	fit.Replicates = len(samples)
	for _, j := range f.model.free {
		if k.priorDominated[j] {
			continue
		}
		e := fit.at(j)
		low, high := percentiles(samples, func(s []float64) float64 { return s[j] })
		e.Low, e.High = math.Exp(low), math.Exp(high)
		if high-low > undeterminedWidth && e.Status == Fitted {
			e.Status = Undetermined
		}
	}
	return samples, nil
}

// percentiles returns the ends of the central interval of value over the samples.
func percentiles(samples [][]float64, value func(sample []float64) float64) (low, high float64) {
	column := lists.Map(samples, value)
	slices.Sort(column)
	quantile := func(p float64) float64 { return stat.Quantile(p, stat.LinInterp, column, nil) }
	return quantile((1 - level) / 2), quantile(1 - (1-level)/2)
}

func (f *fitting) compare(fit *Fit, samples [][]float64, k identification) error {
	name := f.options.Baseline
	if name == "" {
		return nil
	}
	if !slices.ContainsFunc(fit.Effs, func(e Efficiency) bool { return e.Method == name }) {
		return fmt.Errorf("no method %q to compare with; there are %s",
			name, quotedGroups(groups(f.points)))
	}
	for i := range fit.Effs {
		e := &fit.Effs[i]
		base := Group{name, e.Bits}
		if e.Method == name || fit.Eff(base) == 0 {
			continue
		}
		gain := e.Value / fit.Eff(base)
		g := &Interval{gain, gain, gain}
		own, others := f.index[e.Group], f.index[base]
		if samples != nil && !k.priorDominated[own] && !k.priorDominated[others] {
			log := func(s []float64, j int) float64 {
				if j < 0 {
					return 0 // the reference
				}
				return s[j]
			}
			low, high := percentiles(samples, func(s []float64) float64 {
				return log(s, own) - log(s, others)
			})
			g.Low, g.High = math.Exp(low), math.Exp(high)
		}
		e.Gain = g
	}
	return nil
}
