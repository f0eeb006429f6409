package memory

import "fmt"

// By says who says what a run needs.
type By string

// Who says it.
const (
	Sizes By = "sizes" // [Estimate], from sizes alone
	XLA   By = "XLA"   // the compiler of the device, from the program of a step
)

// Report says what a run needs, for people and programs.
type Report struct {
	Bytes    float64 `json:"bytes"` // total; of each GPU
	Parts    []Part  `json:"parts"`
	Host     float64 `json:"host,omitempty"` // of the machine's memory, for each GPU that keeps states there
	By       By      `json:"by"`
	Accuracy float64 `json:"accuracy"` // the share by which it may be off; 0 by XLA
	// Seconds is how long XLA took to compile what it was asked about.
	Seconds float64 `json:"seconds,omitempty"`
	// Reason says why XLA was not asked, where there might have been a GPU.
	Reason string `json:"reason,omitempty"`
	// Available is nil if it is not known how much the machine, or the GPU, has.
	Available *Available `json:"available,omitempty"`
	// Fits says that [Check] does not refuse the run.
	Fits bool `json:"fits"`
	// Changes are changed settings with each of which a run that does not fit would fit, by the estimate.
	Changes []string `json:"changes,omitempty"`
	// Phases are the ranges of steps of a run whose quantizers change; empty for others.
	Phases []Phase `json:"phases,omitempty"`

	model Model
}

// Phase is a range of steps with the same quantizers.
type Phase struct {
	From  int     `json:"from"`
	To    int     `json:"to"`
	Bytes float64 `json:"bytes"`
	// How many weights, activations and operands of the backward pass are quantized.
	Weights     int `json:"weights"`
	Activations int `json:"activations"`
	Backward    int `json:"backward"`
}

func (p Phase) String() string {
	text := fmt.Sprintf("steps %d to %d: %s, with %d quantized weights and %d activations", p.From, p.To, Bytes(p.Bytes), p.Weights, p.Activations)
	if p.Backward > 0 {
		text += fmt.Sprintf(", %d operands of the backward pass", p.Backward)
	}
	return text
}

// NewReport estimates what a model needs, and compares it with what is available.
func NewReport(m Model, available *Available) *Report {
	need := Estimate(m)
	r := &Report{Bytes: need.Total(), Parts: need.Parts(), Host: need.Host, By: Sizes, Accuracy: m.accuracy(), Available: available}
	return r.compare(m)
}

// Compiled is what the compiler of a device says that a step needs, in bytes.
type Compiled struct {
	State, Temporary, Other float64
	Host                    float64 // of the machine's memory
	Seconds                 float64 // that it took to compile
}

// Total returns the sum.
func (c Compiled) Total() float64 { return c.State + c.Temporary + c.Other }

// ByXLA is the report of what XLA says that a model needs. The estimate is only used to say what would fit.
func ByXLA(m Model, c Compiled, available *Available) *Report {
	parts := []Part{
		{"parameters, and states of optimizers and quantizers", c.State},
		{"values inside a step: activations, gradients, quantized weights", c.Temporary},
		{"its code, and what else it reads and returns", c.Other},
	}
	r := &Report{Bytes: c.Total(), Parts: largestFirst(parts), Host: c.Host, By: XLA, Seconds: c.Seconds, Available: available}
	return r.compare(m)
}

// compare completes a report with what follows from the memory that is available.
func (r *Report) compare(m Model) *Report {
	r.model = m
	r.Fits = r.Bytes < addressable && (r.Available == nil || r.Bytes*(1-r.Accuracy) <= float64(r.Available.Bytes))
	if !r.Fits && r.Available != nil {
		r.Changes = changes(m, *r.Available, r.Bytes/Estimate(m).Total())
	}
	return r
}

// Err returns an [*Error] if the run does not fit.
func (r *Report) Err() error {
	if r.Fits {
		return nil
	}
	return &Error{Report: r}
}

// enough is the share of what a run needs that is to be left of it where a device had too little all the same.
const enough = 0.8

// Remedies lists what to change in a run for which a GPU had too little memory, whether or not it should have had enough.
func (r *Report) Remedies() []string {
	if !r.Fits {
		return r.Changes
	}
	list := changes(r.model, Available{Bytes: int64(enough * r.Bytes)}, r.Bytes/Estimate(r.model).Total())
	if r.Available != nil && r.Available.Fraction > 0 && r.Available.Fraction < ownShare {
		list = append(list, fmt.Sprintf("device.memory_fraction = %g, if nothing else uses the GPU", ownShare))
	}
	return list
}

// Says begins a sentence about what a run needs: how much, of what, and who says so.
func (r *Report) Says() string {
	switch {
	case r.By == XLA:
		return fmt.Sprintf("%s of each GPU's memory by XLA", Bytes(r.Bytes))
	case r.model.GPU != nil:
		return fmt.Sprintf("about %s of each GPU's memory", Bytes(r.Bytes))
	default:
		return fmt.Sprintf("about %s of memory", Bytes(r.Bytes))
	}
}
