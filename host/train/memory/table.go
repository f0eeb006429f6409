package memory

import (
	"fmt"
	"sort"
)

// Part is one item of the memory that a run needs.
type Part struct {
	What  string  `json:"what"`
	Bytes float64 `json:"bytes"`
}

// String returns a line of a table.
func (p Part) String() string { return fmt.Sprintf("%-10s %s", Bytes(p.Bytes), p.What) }

// Parts lists what a run needs, the largest first, leaving out items that are zero.
func (n Need) Parts() []Part {
	all := []Part{
		{"the program itself", n.Program},
		{"parameters", n.Parameters},
		{"gradients, and parameters after the step", n.Gradients},
		{"quantized copies of weights", n.Quantized},
		{"states of the optimizer", n.States},
		{"products of the optimizer", n.Workspace},
		{"activations of the blocks", n.Blocks},
		{"attention scores, which grow with the square of the context", n.Scores},
		{"logits of the vocabulary", n.Logits},
		{"keys and values of what has been read", n.Caches},
		{"parameters of the teacher", n.Teacher},
		{"samples of codes", n.Samples},
	}
	var list []Part
	for _, p := range all {
		if p.Bytes > 0 {
			list = append(list, p)
		}
	}
	sort.SliceStable(list, func(i, j int) bool { return list[i].Bytes > list[j].Bytes })
	return list
}

// Report is an estimate for people and programs.
type Report struct {
	Bytes    float64 `json:"bytes"` // total
	Parts    []Part  `json:"parts"`
	Accuracy float64 `json:"accuracy"` // the share by which it may be off
	// Available is nil if it is not known how much the machine, or the GPU, has.
	Available *Available `json:"available,omitempty"`
	// Fits says that [Check] does not refuse the run.
	Fits bool `json:"fits"`
}

// NewReport estimates what a model needs, and compares it with what is available.
func NewReport(m Model, available *Available) *Report {
	need := Estimate(m)
	return &Report{Bytes: need.Total(), Parts: need.Parts(), Accuracy: Accuracy, Available: available, Fits: need.fits(available)}
}
