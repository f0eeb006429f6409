package study

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Level is the confidence level of the intervals in reports.
const Level = 0.95

// Sample summarizes a sample of values of one quantity.
type Sample struct {
	N    int
	Mean float64 // NaN when N is 0, or when a value is not a number
	SD   float64 // standard deviation, with N−1 in the denominator; NaN when N < 2
}

// Describe returns the mean and standard deviation of x. Values that are not finite are included:
// if a run diverged, the mean is not finite either.
func Describe(x []float64) Sample {
	s := Sample{N: len(x)}
	// Without values both are NaN, as 0/0; with one, the deviation is.
	s.Mean, s.SD = stat.MeanStdDev(x, nil)
	if len(x) > 1 && slices.Min(x) == slices.Max(x) { // exact, whereas the sums above are rounded
		s.Mean, s.SD = x[0], 0
	}
	return s
}

// Interval returns the confidence interval of the mean by Student's t, for independent and normally
// distributed values: mean ± t·SD/√N, with N−1 degrees of freedom. It is NaN if N < 3:
// two values say next to nothing about their deviation.
func (s Sample) Interval(level float64) (low, high float64) {
	if s.N < 3 {
		return math.NaN(), math.NaN()
	}
	half := student(s.N).Quantile((1+level)/2) * stat.StdErr(s.SD, float64(s.N))
	return s.Mean - half, s.Mean + half
}

func student(n int) distuv.StudentsT { return distuv.StudentsT{Sigma: 1, Nu: float64(n - 1)} }

// Difference summarizes the paired differences of two quantities.
type Difference struct {
	N    int     // number of pairs
	Mean float64 // NaN when N is 0
	SD   float64 // standard deviation of the differences; NaN when N < 2
	// Low and High are the confidence interval of the mean. They are NaN if N < 3, if all differences
	// are equal and not zero, or if one is not finite.
	Low, High float64
}

// rounding bounds the rounding error of a difference, relative to the larger of the two numbers.
const rounding = 1e-12

// Pair describes the differences a[i] − b[i] of two slices of equal length, with the
// [Sample.Interval] of their mean. Pairing removes common effects, such as the difficulty of a
// seed. If all differences are equal, nothing is known about their variation, so there is no
// interval, unless they are zero.
func Pair(a, b []float64, level float64) Difference {
	differences, largest := make([]float64, len(a)), 0.0
	for i := range a {
		differences[i] = a[i] - b[i]
		largest = max(largest, math.Abs(a[i]), math.Abs(b[i]))
	}
	s := Describe(differences)
	low, high := s.Interval(level)
	if s.SD <= rounding*largest {
		s.SD = 0
		if low, high = s.Mean, s.Mean; s.N < 3 || math.Abs(s.Mean) > rounding*largest {
			low, high = math.NaN(), math.NaN()
		}
	}
	if s.Mean-s.Mean != 0 { // it is NaN or infinite
		low, high = math.NaN(), math.NaN()
	}
	return Difference{N: s.N, Mean: s.Mean, SD: s.SD, Low: low, High: high}
}

// HasInterval reports whether there is an interval.
func (d Difference) HasInterval() bool { return !math.IsNaN(d.Low) && !math.IsNaN(d.High) }

// Clear reports whether the interval excludes zero, so that the difference is larger than
// chance makes plausible.
func (d Difference) Clear() bool { return d.HasInterval() && (d.Low > 0 || d.High < 0) }

// ItemDifference compares two quantities item by item: questions, or sequences of tokens.
type ItemDifference struct {
	N         int     // number of items
	Low, High float64 // interval of the mean difference, by a bootstrap over the items
	// More and Less count the items with a positive and a negative difference. If values are 0 or 1,
	// as of wrong and right answers, P is the p-value of the exact test that both are equally likely,
	// otherwise NaN. With one replicate that is McNemar's test ("Note on the sampling error of the
	// difference between correlated proportions or percentages", 1947).
	More, Less int
	P          float64
}

// resamples is the number of resamples of the bootstrap.
const resamples = 2000

// PairItems compares two models, each with its values of the same items in one or more replicates,
// which are averaged for each item. Equal values give equal results, because the bootstrap is
// seeded. The test is over items, not replicates: it says whether other items would show the same
// for these models. It returns nil if a model has no values or the items differ.
func PairItems(a, b [][]float64, level float64) *ItemDifference {
	if len(a) == 0 || len(b) == 0 || len(a[0]) == 0 {
		return nil
	}
	d := &ItemDifference{N: len(a[0]), P: math.NaN()}
	differences, binary := make([]float64, d.N), true
	for i, side := range [][][]float64{a, b} {
		for _, values := range side {
			if len(values) != d.N {
				return nil
			}
			for k, x := range values {
				differences[k] += float64(1-2*i) * x / float64(len(side))
				binary = binary && (x == 0 || x == 1)
			}
		}
	}
	for k, x := range differences {
		if math.Abs(x) < rounding {
			differences[k] = 0 // of equal means with rounded sums
		} else if x > 0 {
			d.More++
		} else {
			d.Less++
		}
	}
	means, rng := make([]float64, resamples), rand.New(rand.NewPCG(1, 2))
	for i := range means {
		for range d.N {
			means[i] += differences[rng.IntN(d.N)] / float64(d.N)
		}
	}
	slices.Sort(means)
	d.Low = stat.Quantile((1-level)/2, stat.Empirical, means, nil)
	d.High = stat.Quantile((1+level)/2, stat.Empirical, means, nil)
	if changed := float64(d.More + d.Less); binary && changed > 0 {
		tail := distuv.Binomial{N: changed, P: 0.5}.CDF(float64(min(d.More, d.Less)))
		d.P = min(1, 2*tail)
	} else if binary {
		d.P = 1
	}
	return d
}

// P returns the p-value of the paired t-test, or NaN if there is no interval. The interval at a
// level excludes zero if P < 1 − level.
func (d Difference) P() float64 {
	switch {
	case !d.HasInterval():
		return math.NaN()
	case d.SD == 0: // and all differences are zero
		return 1
	}
	return 2 * student(d.N).Survival(math.Abs(d.Mean)/stat.StdErr(d.SD, float64(d.N)))
}

// Holm corrects p-values, such as those of [Difference.P], for multiple tests (Holm, "A simple
// sequentially rejective multiple test procedure", 1979): the probability that the corrected
// p-value of any true null hypothesis falls below a limit is at most that limit, even if the tests
// depend on each other. NaN stays NaN and is not counted as a test.
func Holm(p []float64) []float64 {
	out := slices.Clone(p)
	var order []int // indices by increasing p-value
	for i, x := range p {
		if !math.IsNaN(x) {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(p[i], p[j]) })
	last := 0.0
	for rank, i := range order {
		last = max(last, min(1, float64(len(order)-rank)*p[i]))
		out[i] = last
	}
	return out
}
