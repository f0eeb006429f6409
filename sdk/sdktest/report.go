package sdktest

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/cage-qat/cage/sdk"
)

// Status is the outcome of a check.
type Status string

// The outcomes. A check is skipped when the plugin gives nothing to check, for example a
// quantizer without codes; the notes of the check say so.
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
	// Settings are those that the caller fixed.
	Settings map[string]any `json:"settings,omitempty"`
	// Machines names what the programs ran on.
	Machines []string  `json:"machines"`
	Checks   []Check   `json:"checks"`
	Measures []Measure `json:"measures,omitempty"`
}

// Failed reports whether any check failed.
func (r Report) Failed() bool {
	return slices.ContainsFunc(r.Checks, func(c Check) bool { return c.Status == Fail })
}

// Check is the outcome of one named check.
type Check struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	// Asks says what a plugin has to do to pass.
	Asks string `json:"asks"`
	// Tried counts the examples that were tried.
	Tried int `json:"tried"`
	// Failed counts the examples that failed; Failures holds the first of them.
	Failed   int       `json:"failed,omitempty"`
	Failures []Failure `json:"failures,omitempty"`
	// Notes tell what is worth knowing about a check that did not fail.
	Notes []string `json:"notes,omitempty"`
}

// Failure is an example that failed, complete enough to repeat it.
type Failure struct {
	Message string `json:"message"`
	// Machine is where the program ran; empty if none did.
	Machine string `json:"machine,omitempty"`
	// Role and Shape are those of the site or tensor.
	Role  string `json:"role,omitempty"`
	Shape []int  `json:"shape,omitempty"`
	// Settings are the parameters that differ from their defaults.
	Settings map[string]any `json:"settings,omitempty"`
	// Index is the element at fault, empty for a single number. Input is x there, Got is
	// the result, and Want is what it should be.
	Index []int   `json:"index,omitempty"`
	Input *Number `json:"input,omitempty"`
	Got   *Number `json:"got,omitempty"`
	Want  *Number `json:"want,omitempty"`
}

// Measure is a number that the kit reports and does not judge.
type Measure struct {
	Name  string `json:"name"`
	Value Number `json:"value"`
	Unit  string `json:"unit,omitempty"`
}

// Number is a float64 that JSON can hold: NaN and the infinities are the strings
// "NaN", "Inf" and "-Inf".
type Number float64

// String writes the number with as many digits as it needs.
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

// MarshalJSON writes the number, or the string that stands for it.
func (n Number) MarshalJSON() ([]byte, error) {
	if v := float64(n); math.IsNaN(v) || math.IsInf(v, 0) {
		return json.Marshal(n.String())
	}
	return json.Marshal(float64(n))
}

// UnmarshalJSON reads what MarshalJSON writes.
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
