package memory

import (
	"fmt"
	"math"
	"runtime/debug"
	"sort"
	"strings"
)

// Accuracy is the share by which the estimate may be off. A run that would fit if the
// estimate is too high by that share is not refused.
const Accuracy = 0.25

// addressable is more than a process can have on the machines of today (48 bits of address, half of them its own).
const addressable = 1 << 47

// Check returns an [*Error] if a run needs more memory than is available or, if available
// is nil, more than any machine has.
func Check(m Model, available *Available) error { return check(m, available, false) }

// CheckPart is [Check] with only a part of what a run needs, such as the model without its optimizer. The error says so; it
// cannot tell what would fit.
func CheckPart(m Model, available *Available) error { return check(m, available, true) }

func check(m Model, available *Available, part bool) error {
	need := Estimate(m)
	if need.fits(available) {
		return nil
	}
	e := &Error{Need: need, Limit: "more than any machine has", part: part}
	if available != nil {
		e.Limit = available.String()
		if !part {
			e.Fits = fitting(m, float64(available.Bytes))
		}
	}
	return e
}

// fits tells whether Check accepts a run.
func (n Need) fits(available *Available) bool {
	total := n.Total()
	return total < addressable && (available == nil || total*(1-Accuracy) <= float64(available.Bytes))
}

// String says how much memory is available, and what limits it.
func (a Available) String() string {
	return fmt.Sprintf("%s are there (%s)", Bytes(float64(a.Bytes)), a.Limit)
}

// Error says why there is not enough memory.
type Error struct {
	Need  Need
	Limit string
	Fits  []string // changed settings with which the run would fit

	part bool // the need is only a part
}

func (e *Error) Error() string {
	var b strings.Builder
	about, without := "about", ""
	if e.part {
		about, without = "at least", "\n  and what quantizers and optimizers need"
	}
	fmt.Fprintf(&b, "this needs %s %s of memory, %s", about, Bytes(e.Need.Total()), e.Limit)
	for _, p := range e.Need.Parts() {
		if p.Bytes >= 0.01*e.Need.Total() {
			fmt.Fprintf(&b, "\n  %s", p)
		}
	}
	b.WriteString(without)
	if len(e.Fits) > 0 {
		fmt.Fprintf(&b, "\nwhat would fit: %s", strings.Join(e.Fits, "; or "))
	} else {
		b.WriteString("\nwhat would fit is a smaller model")
	}
	return b.String()
}

// fitting lists single changes with which a model would fit into memory.
func fitting(m Model, bytes float64) []string {
	fits := func(m Model) bool { return Estimate(m).Total() <= bytes }
	var list []string
	fewer, shorter := "train.batch = %d, with a larger train.accumulate", "model.context = %d"
	if m.Forward {
		fewer, shorter = "%d sequences at once", "sequences of %d tokens (--context of a Hugging Face checkpoint)"
	}
	if batch := largest(m.Batch, func(n int) bool { m := m; m.Batch = n; return fits(m) }); batch > 0 {
		list = append(list, fmt.Sprintf(fewer, batch))
	}
	if context := largest(m.Context, func(n int) bool { m := m; m.Context = n; return fits(m) }); context > 0 {
		list = append(list, fmt.Sprintf(shorter, context))
	}
	if still := m; m.Samples > 0 {
		if still.Samples = 0; fits(still) {
			list = append(list, "smaller diagnostics.coordinates or diagnostics.window")
		}
	}
	if recompute := m; !m.Recompute && !m.Forward {
		if recompute.Recompute = true; fits(recompute) {
			list = append(list, `train.recompute = "blocks"`)
		}
	}
	return list
}

// largest is the largest number below n that fits, 0 for none.
func largest(n int, fits func(int) bool) int {
	return max(0, sort.Search(max(0, n-1), func(i int) bool { return !fits(i + 1) }))
}

// Bytes formats a number of bytes for people.
func Bytes(n float64) string {
	const units = "kMGTPEZY"
	if n < 999.5 {
		return fmt.Sprintf("%.0f B", n)
	}
	at := 1
	for n /= 1000; n >= 999.5 && at < len(units); n /= 1000 { // 999.5 would be shown as 1e+03
		at++
	}
	return fmt.Sprintf("%.3g %cB", n, units[at-1])
}

// share of the available memory that garbage may fill.
const share = 0.9

// Limit makes the garbage collector work harder when the memory of this process comes
// close to what is available; otherwise, garbage takes about as much memory as what is in
// use. A limit that the user has set (GOMEMLIMIT) is kept.
func Limit(a Available) {
	if debug.SetMemoryLimit(-1) == math.MaxInt64 {
		debug.SetMemoryLimit(int64(share * float64(a.Bytes)))
	}
}
