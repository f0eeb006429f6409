package figure_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/cage-qat/cage/host/study/figure"
)

// TestExtremes: figures of values that no axis can tell apart, and of those at the ends of what can be written, are drawn,
// in all kinds, with a handful of marks.
func TestExtremes(t *testing.T) {
	smallest, largest := math.SmallestNonzeroFloat64, math.MaxFloat64
	for _, values := range [][]float64{
		{0.1, math.Nextafter(0.1, 1)}, {1e9, math.Nextafter(1e9, 0)}, {-0.1, math.Nextafter(-0.1, 1)}, {1e-10, 1e-10}, {0, 0}, {smallest, smallest},
		{0, smallest}, {smallest, largest}, {-largest, largest}, {largest, largest}, {1, 1 + 1e-9}, {1, 1 + 1e-8},
	} {
		for _, log := range []bool{false, true} {
			axis := figure.Axis{Log: log}
			var points []figure.Point
			var bars []figure.Bar
			for _, v := range values {
				points, bars = append(points, figure.Point{X: v, Y: v}), append(bars, figure.Bar{Y: v})
			}
			for name, picture := range map[string]figure.Picture{
				"chart":       &figure.Chart{X: axis, Y: axis, Series: []figure.Series{{Points: points, Line: figure.Solid, Marks: true}}},
				"bars":        &figure.Bars{Y: axis, Groups: []string{"a", "b"}, Series: []figure.BarSeries{{Bars: bars}}},
				"heat":        &figure.Heat{Columns: []string{"a", "b"}, Rows: []string{"c"}, Values: [][]float64{values}, Log: log},
				"differences": &figure.Differences{Rows: []string{"a"}, Series: []figure.DifferenceSeries{{Rows: []figure.PairDifferences{{Each: values, Mean: values[0], Low: values[0], High: values[1]}}}}},
			} {
				t.Run(fmt.Sprintf("%s/%v/log=%t", name, values, log), func(t *testing.T) {
					var b bytes.Buffer
					err := figure.Draw(&b, figure.SVG, picture, figure.Options{})
					if ordinary := !log && math.Abs(values[1]) < 1e10; err != nil && (ordinary || !errors.Is(err, figure.ErrNoData)) || b.Len() > 100_000 {
						t.Errorf("%d bytes, %v", b.Len(), err)
					}
				})
			}
		}
	}
}
