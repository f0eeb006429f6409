package tasks

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Comparison compares two models on the same items. Differences are first minus second.
type Comparison struct {
	Task, Metric  string
	Items         int
	First, Second float64
	Difference    float64
	// Low and High are the 95 % confidence interval of the difference: percentiles over bootstrap
	// samples of the items, each of which is used for both models.
	Low, High float64
	// OnlyFirst and OnlySecond count the items that only one of the models answers right. McNemar
	// is the p-value of McNemar's test (exact, two-sided). It is NaN for metrics that are not right
	// or wrong.
	OnlyFirst, OnlySecond int
	McNemar               float64
}

const bootstraps = 10000

// ErrText is the error of comparing a task of whole texts.
var ErrText = errors.New("whole texts are not compared one by one")

// Compare compares the answers of two models to the same items of a task. For a task of whole
// texts, the error wraps [ErrText].
func Compare(t *Task, first, second []Sample) ([]Comparison, error) {
	if t.Kind == Text {
		return nil, fmt.Errorf("%s: %w", t.Name, ErrText)
	}
	if len(first) != len(second) {
		return nil, fmt.Errorf("%s: one model answered %d items, the other %d",
			t.Name, len(first), len(second))
	}
	for i := range first { // examples and templates may differ, but the row must not
		a, b := &first[i].Item, &second[i].Item
		if a.Doc != b.Doc || a.Gold != b.Gold || a.Target != b.Target ||
			!slices.Equal(a.Choices, b.Choices) {
			return nil, fmt.Errorf("%s: item %d is another question for each model", t.Name, i)
		}
	}
	var list []Comparison
	for _, name := range t.MetricNames() {
		a, b := make([]float64, len(first)), make([]float64, len(first))
		for i := range first {
			a[i], b[i] = first[i].Values[name], second[i].Values[name]
		}
		list = append(list, compare(t.Name, name, a, b))
	}
	return list, nil
}

// CompareAll compares the tasks that both have. It skips those of whole texts, as leftOut reports.
func CompareAll(first, second []*Result) (list []Comparison, leftOut, err error) {
	for _, a := range first {
		for _, b := range second {
			if a.Task.Name != b.Task.Name {
				continue
			}
			more, err := Compare(a.Task, a.Samples, b.Samples)
			switch {
			case errors.Is(err, ErrText):
				leftOut = errors.Join(leftOut, err)
			case err != nil:
				return nil, nil, err
			}
			list = append(list, more...)
		}
	}
	switch {
	case len(list) > 0:
		return list, leftOut, nil
	case leftOut != nil:
		return nil, nil, leftOut
	}
	return nil, nil, fmt.Errorf("they have no task in common")
}

func compare(task, metric string, a, b []float64) Comparison {
	c := Comparison{Task: task, Metric: metric, Items: len(a),
		First: stat.Mean(a, nil), Second: stat.Mean(b, nil), McNemar: math.NaN()}
	of := func(a, b float64) float64 { return a - b }
	if strings.HasPrefix(metric, Perplexity+",") {
		c.First, c.Second = math.Exp(-c.First), math.Exp(-c.Second)
		of = func(a, b float64) float64 { return math.Exp(-a) - math.Exp(-b) }
	} else {
		c.count(a, b)
	}
	c.Difference = c.First - c.Second
	rng := rand.New(rand.NewPCG(1234, 0))
	draws := make([]float64, bootstraps)
	for i := range draws {
		sumA, sumB := 0.0, 0.0
		for range a {
			k := rng.IntN(len(a))
			sumA, sumB = sumA+a[k], sumB+b[k]
		}
		draws[i] = of(sumA/float64(len(a)), sumB/float64(len(b)))
	}
	slices.Sort(draws)
	c.Low, c.High = draws[bootstraps/40], draws[bootstraps-1-bootstraps/40]
	return c
}

// count computes McNemar's test on the items that only one of the models answers right.
func (c *Comparison) count(a, b []float64) {
	for i := range a {
		switch {
		case a[i] > b[i]:
			c.OnlyFirst++
		case b[i] > a[i]:
			c.OnlySecond++
		}
	}
	n := c.OnlyFirst + c.OnlySecond
	if n == 0 {
		c.McNemar = 1
		return
	}
	coin := distuv.Binomial{N: float64(n), P: 0.5}
	c.McNemar = min(1, 2*coin.CDF(float64(min(c.OnlyFirst, c.OnlySecond))))
}
