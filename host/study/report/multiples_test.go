package report

import (
	"fmt"
	"math"
	"testing"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/study/figure"
)

// TestDivided: curves of more series than there are colours become small multiples, by the first axis.
func TestDivided(t *testing.T) {
	s := &study.Study{Axes: []study.Axis{{Name: "bits", Labels: []string{"2", "4"}}, {Name: "method"}}}
	var results []study.Result
	add := func(methods int) {
		for _, bits := range s.Axes[0].Labels {
			label := fmt.Sprintf("m%d", methods)
			s.Axes[1].Labels = append(s.Axes[1].Labels, label)
			results = append(results, study.Result{Cell: study.Cell{Labels: map[string]string{"bits": bits, "method": label}}})
		}
	}
	for methods := range 3 {
		add(methods)
	}
	f := study.Figure{Kind: study.Curves, Title: "Loss", Series: []string{"bits", "method"}}
	if got := divided(s, f, results); len(got) != 1 || got[0].Title != "Loss" {
		t.Errorf("six series are divided: %+v", got)
	}
	add(3)
	got := divided(s, f, results)
	if len(got) != 2 || got[0].Title != "Loss: bits 2" || got[1].Title != "Loss: bits 4" || len(got[1].Series) != 1 || got[1].Series[0] != "method" || got[1].Where["bits"][0] != "4" {
		t.Errorf("eight series become %+v", got)
	}
	if f.Where != nil {
		t.Error("the figure of the study file has changed")
	}
	f.Series = []string{"method"}
	if got := divided(s, f, results); len(got) != 1 {
		t.Errorf("series of one axis are divided: %+v", got)
	}
}

func TestTold(t *testing.T) {
	for _, c := range []struct {
		axes, labels []string
		want         string
	}{
		{[]string{"bits", "method"}, []string{"4", "QuEST"}, "bits 4 · QuEST"},
		{[]string{"λ"}, []string{"0.5"}, "λ 0.5"},
		{[]string{"method"}, []string{"CAGE, λ = 2"}, "CAGE, λ = 2"},
		{nil, nil, ""},
	} {
		if got := seriesName(c.axes, c.labels); got != c.want {
			t.Errorf("%v of %v: %q, want %q", c.labels, c.axes, got, c.want)
		}
	}
}

func TestEqualDigits(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   string
	}{
		{[]float64{0.133, 0.1824, math.NaN()}, "%.4f"},
		{[]float64{1.283, 0.499}, "%.3f"},
		{[]float64{123456, 1000}, "%#.4g"},
		{[]float64{1e-9, 1}, "%#.4g"},
		{[]float64{0, math.Inf(1)}, "%g"},
		{[]float64{-12.5, 3}, "%.2f"},
	} {
		if got := equalDigits([][]float64{c.values, nil}); got != c.want {
			t.Errorf("%v: %s, want %s", c.values, got, c.want)
		}
	}
}

// TestSameScale: small multiples have one vertical axis, with the points of all in it.
func TestSameScale(t *testing.T) {
	chart := func(y ...float64) *Figure {
		c := &figure.Chart{Series: []figure.Series{{Band: true}}}
		for i, v := range y {
			c.Series[0].Points = append(c.Series[0].Points, figure.Point{X: float64(i), Y: v, Plus: 0.5})
		}
		return &Figure{Picture: c}
	}
	list := []*Figure{chart(1, 2), chart(), chart(7, 5), {}}
	sameScale(list)
	for _, f := range list[:3] {
		axis := f.Picture.(*figure.Chart).Y
		if axis.Min >= 1 || axis.Max <= 7.5 || axis != list[0].Picture.(*figure.Chart).Y {
			t.Errorf("the axis is %+v", axis)
		}
	}
	alone := chart(1, 2)
	if sameScale([]*Figure{alone}); alone.Picture.(*figure.Chart).Y != (figure.Axis{}) {
		t.Error("a chart alone has another axis")
	}
}
