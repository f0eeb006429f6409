package figure

import (
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
)

// Axis describes an axis of a figure.
type Axis struct {
	Label    string
	Log      bool    // logarithmic; values that are not positive are omitted
	Min, Max float64 // range of the axis; both 0: the range of the data
}

// largest is the magnitude above which values are not drawn: they would leave no space for the
// rest, and overflow in the arithmetic of plotting.
const largest = 1e30

func (a Axis) drawable(v float64) bool {
	if a.Log {
		return v > 1/largest && v < largest
	}
	return math.Abs(v) < largest // false for NaN
}

// reach returns the drawn length of one side of an interval: length if it is positive, else 0.
func reach(length float64) float64 {
	if !(length > 0) {
		return 0
	}
	return min(length, largest)
}

type span struct{ low, high float64 }

func newSpan() span { return span{math.Inf(1), math.Inf(-1)} }

func (s *span) add(a Axis, values ...float64) {
	for _, v := range values {
		if a.drawable(v) {
			s.low, s.high = min(s.low, v), max(s.high, v)
		}
	}
}

func (s span) empty() bool { return s.low > s.high }

// single reports whether the range is too small for its values to be distinguished on an axis.
func (s span) single() bool {
	return s.high-s.low <= 1e-9*max(math.Abs(s.low), math.Abs(s.high))
}

// padding is the fraction of the range that is added as space at either end.
const padding = 0.05

func (a Axis) apply(axis *plot.Axis, s span) {
	axis.Label.Text = clean(a.Label)
	if a.Log {
		axis.Scale = plot.LogScale{}
		axis.Tick.Marker = logTicks{}
	}
	switch {
	case a.Min < a.Max && (!a.Log || a.Min > 0):
		axis.Min, axis.Max = a.Min, a.Max
	case a.Log:
		factor := math.Pow(s.high/s.low, padding)
		if s.single() {
			factor = 2
		}
		axis.Min, axis.Max = s.low/factor, s.high*factor
	default:
		margin := padding * (s.high - s.low)
		if s.single() {
			margin = max(0.1*math.Abs(s.low), 1e-9)
		}
		axis.Min, axis.Max = s.low-margin, s.high+margin
		if s.low >= 0 && s.low <= 0.05*s.high {
			axis.Min = 0 // no space below zero, where there are no values
		}
	}
}

// ticks places ticks at round numbers, labelled without an exponent where that is readable.
// unlabelled is for a panel that shares the axis of the panel below it.
type ticks struct{ unlabelled bool }

// Ticks returns the ticks of an axis from low to high.
func (t ticks) Ticks(low, high float64) []plot.Tick {
	step, digits := 1.0, 0
	if x := (high - low) / 6; x > 0 { // the next of 1, 2, 2.5, 5 and 10 times a power of ten
		exponent := math.Floor(math.Log10(x))
		for _, m := range []float64{1, 2, 2.5, 5, 10} {
			if step = m * math.Pow(10, exponent); step >= x*(1-1e-9) {
				break
			}
		}
		digits = max(0, -int(math.Floor(math.Log10(step)+1e-9)))
		if first := step / math.Pow(10, exponent); math.Abs(first-2.5) < 1e-6 {
			digits = max(0, 1-int(exponent))
		}
	}
	var out []plot.Tick
	first := math.Ceil(low/step - 1e-9)
	const maxTicks = 10       // more than six steps need
	for i := range maxTicks { // adding 1 to first would change nothing from 2⁵³ on
		value := (first + float64(i)) * step
		if !(value <= high+step*1e-9) {
			break
		}
		label := " " // a tick without any label is drawn as a minor one
		if !t.unlabelled {
			label = strconv.FormatFloat(value+0, 'f', digits, 64) // +0 turns −0 into 0
			if digits > 6 || math.Abs(value) >= 1e7 {
				// This is enough digits to distinguish the value from the next tick.
				apart := 2 + int(math.Ceil(math.Log10(max(1, math.Abs(value)/step))))
				label = strconv.FormatFloat(value+0, 'g', min(max(4, apart), 17), 64)
			}
		}
		out = append(out, plot.Tick{Value: value, Label: minus(label)})
	}
	return out
}

func minus(s string) string { return strings.ReplaceAll(s, "-", "−") }

// logTicks labels powers of ten and places minor ticks between them. If an axis spans little more
// than a decade, multiples are labelled as well.
type logTicks struct{}

// Ticks returns the ticks of a logarithmic axis from low to high.
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
			// Parsing is exact, unlike a product.
			v, err := strconv.ParseFloat(strconv.Itoa(m)+"e"+strconv.Itoa(e), 64)
			if err != nil || v < low*(1-1e-9) || v > high*(1+1e-9) {
				continue
			}
			tick := plot.Tick{Value: v}
			if strings.Contains(labelled, strconv.Itoa(m)) && e%every == 0 {
				tick.Label = minus(strconv.Itoa(m) + "e" + strconv.Itoa(e))
				if e >= -3 && e <= 4 {
					tick.Label = strconv.FormatFloat(v, 'f', max(0, -e), 64)
				}
			} else if every > 1 {
				continue
			}
			out = append(out, tick)
		}
	}
	return out
}
