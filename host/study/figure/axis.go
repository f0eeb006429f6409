package figure

import (
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
)

// Axis describes an axis of a picture.
type Axis struct {
	Label    string
	Log      bool    // logarithmic; values that are not positive are left out
	Min, Max float64 // range of the axis; both 0: the range of the data
}

func (a Axis) drawable(v float64) bool {
	if a.Log {
		return v > 1/largest && v < largest
	}
	return math.Abs(v) < largest // false for NaN
}

// hasRange reports whether the range was chosen, and is not that of the data.
func (a Axis) hasRange() bool { return a.Min != 0 || a.Max != 0 }

// reach is how far an interval is drawn to one side: not at all unless its length is
// a positive number.
func reach(length float64) float64 {
	if !(length > 0) {
		return 0
	}
	return min(length, largest)
}

// span collects the range of an axis.
type span struct{ low, high float64 }

func newSpan() span { return span{math.Inf(1), math.Inf(-1)} }

func (s *span) add(a Axis, v float64) {
	if a.drawable(v) {
		s.low, s.high = min(s.low, v), max(s.high, v)
	}
}

func (s *span) addInterval(a Axis, v, minus, plus float64) {
	for _, x := range []float64{v, v - reach(minus), v + reach(plus)} {
		s.add(a, x)
	}
}

func (s span) empty() bool { return s.low > s.high }

// single reports whether an axis could not tell the values apart.
func (s span) single() bool { return s.high-s.low <= 1e-9*max(math.Abs(s.low), math.Abs(s.high)) }

// room is the share of a range that is left free at its ends.
const room = 0.05

func (a Axis) apply(axis *plot.Axis, s span) {
	axis.Label.Text = clean(a.Label)
	if a.Log {
		axis.Scale = plot.LogScale{}
		axis.Tick.Marker = logTicks{}
	}
	switch {
	case a.hasRange() && a.Min < a.Max && (!a.Log || a.Min > 0):
		axis.Min, axis.Max = a.Min, a.Max
	case a.Log:
		factor := math.Pow(s.high/s.low, room)
		if s.single() {
			factor = 2
		}
		axis.Min, axis.Max = s.low/factor, s.high*factor
	default:
		margin := room * (s.high - s.low)
		if s.single() {
			margin = max(0.1*math.Abs(s.low), 1e-9)
		}
		axis.Min, axis.Max = s.low-margin, s.high+margin
		if s.low >= 0 && s.low <= 0.05*s.high {
			axis.Min = 0 // no room below zero, where there are no values
		}
	}
}

// logTicks labels powers of ten and marks what lies between them; where an axis
// spans little more than one of them, it labels multiples as well.
type logTicks struct{}

// Ticks returns the marks of a logarithmic axis.
func (logTicks) Ticks(low, high float64) []plot.Tick {
	decades := math.Log10(high / low)
	if decades < 0.5 {
		return ticks{}.Ticks(low, high)
	}
	labelled := "1"
	switch {
	case decades < 1.3:
		labelled = "12345"
	case decades < 2.5:
		labelled = "125"
	}
	every := int(math.Ceil(decades / 8))
	var out []plot.Tick
	for e := int(math.Floor(math.Log10(low))); e <= int(math.Ceil(math.Log10(high))); e++ {
		for m := 1; m <= 9; m++ {
			v, err := strconv.ParseFloat(strconv.Itoa(m)+"e"+strconv.Itoa(e), 64) // exact, unlike a product
			if err != nil || v < low*(1-1e-9) || v > high*(1+1e-9) {
				continue
			}
			tick := plot.Tick{Value: v}
			switch {
			case strings.Contains(labelled, strconv.Itoa(m)) && e%every == 0:
				tick.Label = formatPower(m, e)
			case every > 1:
				continue
			}
			out = append(out, tick)
		}
	}
	return out
}

func formatPower(m, e int) string {
	if e >= -3 && e <= 4 {
		return strconv.FormatFloat(float64(m)*math.Pow10(e), 'f', max(0, -e), 64)
	}
	power := "10" + superscript.Replace(strconv.Itoa(e))
	if m == 1 {
		return power
	}
	return strconv.Itoa(m) + "·" + power
}

var superscript = strings.NewReplacer("-", "⁻", "0", "⁰", "1", "¹", "2", "²", "3", "³", "4", "⁴", "5", "⁵", "6", "⁶", "7", "⁷", "8", "⁸", "9", "⁹")
