package figure_test

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/study/figure"
)

// TestAcross: a point with an interval of X has a second error bar, and room for it.
func TestAcross(t *testing.T) {
	svg := func(across float64) string {
		t.Helper()
		c := &figure.Chart{Series: []figure.Series{{Marks: true, Points: []figure.Point{{X: 1, Y: 1, Plus: 1, Minus: 1, Across: across}, {X: 2, Y: 2, Plus: 1, Minus: 1}}}}}
		var b bytes.Buffer
		if err := figure.Draw(&b, figure.SVG, c, figure.Options{}); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	without, with := svg(0), svg(0.4)
	const thin = "stroke-width:0.9"
	if a, b := strings.Count(without, thin), strings.Count(with, thin); b != a+3 {
		t.Errorf("%d lines of error bars, with an interval of X %d, want 3 more", a, b)
	}
	if svg(math.NaN()) != without || svg(-1) != without {
		t.Error("an interval that is none is drawn")
	}
}

// TestSpan: on a logarithmic axis a band that comes near to zero leaves room for its curve.
func TestSpan(t *testing.T) {
	c := &figure.Chart{Y: figure.Axis{Log: true}, Series: []figure.Series{{Band: true, Points: []figure.Point{{X: 1, Y: 1, Minus: 0.9999999, Plus: 1}, {X: 2, Y: 0.5, Minus: 2}}}}}
	if low, high, ok := c.Span(); !ok || low < 0.1 || low > 0.125 || high < 2 || high > 3 {
		t.Errorf("the axis is from %g to %g, %v", low, high, ok)
	}
	if _, _, ok := (&figure.Chart{}).Span(); ok {
		t.Error("a chart without points has a range")
	}
}
