package serve

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/study/report/page"
	"github.com/cage-qat/cage/host/train/rundir"
)

// Limits of what is kept of single weights.
const (
	mostWeights     = 400
	mostPerWeight   = 16 // numbers
	weightStretches = 128
	drawnWeights    = 14 // whose curves are drawn: as many as can be told apart
)

// weightsView shows the newest numbers of single weights.
type weightsView struct {
	Columns []weightColumn
	Rows    []weightRow
	More    bool // there are more weights than are kept
}

// weightColumn is a number of weights. Not all are measured at the same steps.
type weightColumn struct {
	Name string
	Step int     // of the newest
	most float64 // of all weights
}

type weightRow struct {
	Weight string
	Values []weightValue
}

// weightValue is a number of a weight, with its share of the largest among the weights.
type weightValue struct{ Text, Share string }

// weightNumber is a number of a weight: the newest, and the curve where it is drawn.
type weightNumber struct {
	step  int // of the newest
	value float64
	curve *curve // nil for a weight that is not drawn
}

// Add is that of [curve].
func (n *weightNumber) Add(step int, y float64) {
	if step <= n.step {
		return
	}
	n.step, n.value = step, y
	if n.curve != nil {
		n.curve.Add(step, y)
	}
}

// numberOfWeight is a number of a weight; nil where there are too many.
func (l *runLog) numberOfWeight(weight, name []byte) *weightNumber {
	n := l.weights[string(weight)][string(name)]
	if n != nil {
		return n
	}
	numbers := l.weights[string(weight)]
	if numbers == nil {
		if len(l.weights) >= mostWeights {
			l.moreWeights = true
			return nil
		}
		numbers = map[string]*weightNumber{}
		l.weights[string(weight)] = numbers
		l.weightNames = append(l.weightNames, string(weight))
	}
	if len(numbers) >= mostPerWeight {
		return nil
	}
	n = &weightNumber{step: -1}
	if slices.Contains(l.drawn(), string(weight)) {
		n.curve = newCurve(weightStretches)
	}
	numbers[string(name)] = n
	return n
}

// drawn are the weights whose curves are drawn.
func (l *runLog) drawn() []string { return l.weightNames[:min(len(l.weightNames), drawnWeights)] }

// weightsOf returns what has been read of the weights of a run. Errors of reading are shown
// with the curves.
func (s *Server) weightsOf(run *rundir.Run) (v weightsView) {
	log := s.logs.get(run.Dir)
	log.mu.Lock()
	defer log.mu.Unlock()
	columns := map[string]weightColumn{}
	for _, numbers := range log.weights {
		for name, n := range numbers {
			c := columns[name]
			c.Name, c.Step = name, max(c.Step, n.step)
			if !math.IsInf(n.value, 0) && !math.IsNaN(n.value) {
				c.most = max(c.most, n.value)
			}
			columns[name] = c
		}
	}
	for _, name := range slices.Sorted(maps.Keys(columns)) {
		v.Columns = append(v.Columns, columns[name])
	}
	v.More = log.moreWeights
	for _, weight := range log.weightNames {
		row := weightRow{Weight: weight}
		for _, c := range v.Columns {
			value := weightValue{absent, "0"}
			if n := log.weights[weight][c.Name]; n != nil {
				share := 0.0
				if c.most > 0 && n.value > 0 && !math.IsInf(n.value, 0) {
					share = n.value / c.most
				}
				value = weightValue{fmt.Sprintf("%.3g", n.value), fmt.Sprintf("%.3f", share)}
			}
			row.Values = append(row.Values, value)
		}
		v.Rows = append(v.Rows, row)
	}
	return v
}

// drawnText describes the weights whose curves are drawn, for titles.
func (l *runLog) drawnText() string {
	switch n := len(l.weightNames); {
	case l.moreWeights:
		return fmt.Sprintf("the first %d of more than %d weights", drawnWeights, mostWeights)
	case n > drawnWeights:
		return fmt.Sprintf("the first %d of %d weights", drawnWeights, n)
	}
	return "weights"
}

// weightCharts has a chart for each number of the weights, with a curve for each of the
// first weights.
func (l *runLog) weightCharts() []chartView {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []chartView
	for _, weight := range l.drawn() {
		for name, n := range l.weights[weight] {
			i := slices.IndexFunc(out, func(v chartView) bool { return v.Panel == "weights/"+name })
			if i < 0 {
				i = len(out)
				out = append(out, chartView{Panel: "weights/" + name, Title: name + " of " + l.drawnText(),
					Chart: page.Chart{X: "step", Y: name, Series: []page.Curve{}}})
			}
			out[i].Chart.Series = append(out[i].Chart.Series, pageCurve(weight, n.curve.Points()))
		}
	}
	slices.SortFunc(out, func(a, b chartView) int { return strings.Compare(a.Panel, b.Panel) })
	return out
}
