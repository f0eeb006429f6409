package sdktest

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/sdk"
)

// Status is the outcome of a check.
type Status string

// Outcomes of a check. The note of a skipped check begins with "not applicable" if the check does
// not apply to the plugin, with "optional" if an optional feature is missing, or else with the
// reason.
const (
	Pass Status = "pass"
	Fail Status = "fail"
	Skip Status = "skip"
)

// Report is the result of all checks on one plugin.
type Report struct {
	Plugin  string   `json:"plugin"`
	Version string   `json:"version,omitempty"`
	Kind    sdk.Kind `json:"kind"`
	// Settings are the parameters that the caller fixed.
	Settings map[string]any `json:"settings,omitempty"`
	Machines []string       `json:"machines"` // that ran programs
	Checks   []Check        `json:"checks"`
}

// Failed reports whether any check failed.
func (r Report) Failed() bool {
	return slices.ContainsFunc(r.Checks, func(c Check) bool { return c.Status == Fail })
}

// Check is the outcome of one named check.
type Check struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	Asks   string `json:"asks"`  // the requirement that is checked
	Tried  int    `json:"tried"` // number of examples
	// Failed counts the examples that failed; Failures holds the first of them.
	Failed   int       `json:"failed,omitempty"`
	Failures []Failure `json:"failures,omitempty"`
	Notes    []string  `json:"notes,omitempty"` // remarks that are not failures
}

// Failure is a failed example, with everything needed to reproduce it.
type Failure struct {
	Message string `json:"message"`
	// Machine is the machine that ran the program; empty if none did.
	Machine string `json:"machine,omitempty"`
	Role    string `json:"role,omitempty"` // Role and Shape describe the site or tensor
	Shape   []int  `json:"shape,omitempty"`
	// Settings are the parameters that differ from their defaults.
	Settings map[string]any `json:"settings,omitempty"`
	// Index is the index of the failing element, empty for a scalar. Input is x at that index, Got
	// the result, and Want the expected value.
	Index []int   `json:"index,omitempty"`
	Input *Number `json:"input,omitempty"`
	Got   *Number `json:"got,omitempty"`
	Want  *Number `json:"want,omitempty"`
}

// Number is a float64 whose JSON encodes NaN and infinities as the strings "NaN", "Inf" and "-Inf".
type Number float64

// String formats the number with the fewest digits that identify it.
func (n Number) String() string {
	switch v := float64(n); {
	case math.IsNaN(v):
		return "NaN"
	case math.IsInf(v, 1):
		return "Inf"
	case math.IsInf(v, -1):
		return "-Inf"
	default:
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
}

// MarshalJSON implements [json.Marshaler].
func (n Number) MarshalJSON() ([]byte, error) {
	if v := float64(n); math.IsNaN(v) || math.IsInf(v, 0) {
		return json.Marshal(n.String())
	}
	return json.Marshal(float64(n))
}

// UnmarshalJSON implements [json.Unmarshaler].
func (n *Number) UnmarshalJSON(text []byte) error {
	var s string
	if json.Unmarshal(text, &s) != nil {
		return json.Unmarshal(text, (*float64)(n))
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || !(math.IsNaN(v) || math.IsInf(v, 0)) {
		return fmt.Errorf("%q is not a number", s)
	}
	*n = Number(v)
	return nil
}

func number(v float64) *Number {
	n := Number(v)
	return &n
}

// String returns the report as text: a line for each check, followed by its failures.
func (r Report) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s %s", r.Kind, r.Plugin)
	if r.Version != "" {
		fmt.Fprintf(&s, " %s", r.Version)
	}
	if len(r.Settings) > 0 {
		fmt.Fprintf(&s, " with %s", settingsText(r.Settings))
	}
	fmt.Fprintf(&s, ", on %s\n\n", strings.Join(r.Machines, " and "))
	width := 0
	for _, c := range r.Checks {
		width = max(width, len(c.Name))
	}
	count := map[Status]int{}
	for _, c := range r.Checks {
		c.write(&s, width)
		count[c.Status]++
	}
	passed, failed, skipped := count[Pass], count[Fail], count[Skip]
	fmt.Fprintf(&s, "\n%d checks passed, %d failed, %d skipped\n", passed, failed, skipped)
	return s.String()
}

func (c Check) write(s *strings.Builder, width int) {
	line := []string{fmt.Sprintf("%-4s  %-*s", c.Status, width, c.Name)}
	notes := strings.Join(c.Notes, "; ")
	switch c.Status {
	case Fail:
		line = append(line, fmt.Sprintf("%d of %d; required: %s", c.Failed, c.Tried, c.Asks))
	case Pass:
		line = append(line, fmt.Sprintf("%d tried", c.Tried))
		if notes != "" {
			line[1] += "; " + notes
		}
	case Skip:
		if notes != "" {
			line = append(line, notes)
		}
	}
	fmt.Fprintln(s, strings.Join(line, "  "))
	for _, f := range c.Failures {
		fmt.Fprintf(s, "      %s\n", f)
	}
	if more := c.Failed - len(c.Failures); more > 0 {
		fmt.Fprintf(s, "      and %d more\n", more)
	}
	if c.Status == Fail {
		for _, n := range c.Notes {
			fmt.Fprintf(s, "      note: %s\n", n)
		}
	}
}

// String describes the failure and its example in one line.
func (f Failure) String() string {
	var parts []string
	if f.Machine != "" {
		parts = append(parts, "on "+f.Machine)
	}
	if f.Role != "" || f.Shape != nil {
		parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s %v", f.Role, f.Shape)))
	}
	if len(f.Settings) > 0 {
		parts = append(parts, settingsText(f.Settings))
	}
	text := f.Message
	if len(f.Index) > 0 {
		text += fmt.Sprintf(" at %v", f.Index)
	}
	if f.Input != nil {
		text += fmt.Sprintf(", where x is %s", f.Input)
	}
	if f.Got != nil {
		text += fmt.Sprintf(": got %s", f.Got)
	}
	if f.Want != nil {
		text += fmt.Sprintf(", want %s", f.Want)
	}
	if len(parts) == 0 {
		return text
	}
	return strings.Join(parts, ", ") + ": " + text
}

func settingsText(settings map[string]any) string {
	if len(settings) == 0 {
		return "the defaults"
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		parts = append(parts, fmt.Sprintf("%s=%v", name, settings[name]))
	}
	return strings.Join(parts, " ")
}
