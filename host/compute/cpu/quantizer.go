package cpu

import (
	"slices"

	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/sdk/program"
)

// Operands of an opQuantize.
const (
	quantizedNumbers = iota // the numbers to quantize
	quantizedLow            // the bounds
	quantizedHigh
	quantizedDivisor // a number for each run, like those below; constants if without effect
	quantizedScale
	quantizedDistance
	quantizedOperands
)

// sinks are the outputs that an opQuantize writes directly to memory; −1 means none.
type sinks struct{ codes, value, near int }

// fuseQuantizers finds the pattern that [loops.Quantizer] computes in one pass: numbers, optionally
// divided by a scale, are clamped and rounded to integers. The integers may be an 8-bit output.
// Further outputs may be their products with a scale, and whether the numbers are near the bounds.
// Each fused operation saves a pass, and the whole pattern saves three more.
func (a *analysis) fuseQuantizers(outputs []port) {
	for id := range a.nodes {
		whole := &a.nodes[id]
		if whole.op != opRoundSmall || whole.in[0].scalar || a.nodes[whole.in[0].id].op != opClamp {
			continue
		}
		uses := a.uses() // recounted after earlier rewrites
		if uses[id] == 0 {
			continue
		}
		clampID := whole.in[0].id
		clamp := a.nodes[clampID]
		x := clamp.in[0]
		if x.scalar || x.repeat > 1 || a.nodes[x.id].shared || !clamp.in[1].scalar ||
			!clamp.in[2].scalar {
			continue
		}
		unit := operand{scalar: true, id: a.scalars.constant(1), repeat: 1}
		in := make([]operand, quantizedOperands)
		in[quantizedNumbers], in[quantizedLow], in[quantizedHigh] = x, clamp.in[1], clamp.in[2]
		in[quantizedDivisor], in[quantizedScale], in[quantizedDistance] = unit, unit, unit
		s := sinks{-1, -1, -1}
		nearID := a.only(func(n *node) bool {
			return n.op == opNear && n.in[0].id == x.id && n.in[1].id == clampID && n.in[2].scalar
		})
		if o := a.soleOutput(nearID, uses); o >= 0 && outputs[o].dtype == program.Bool {
			s.near, in[quantizedDistance] = o, a.nodes[nearID].in[2]
		}
		if rest := uses[clampID] - 1; rest > 1 || rest == 1 && s.near < 0 {
			continue // the clamp is computed anyway
		}
		valueID := a.only(func(n *node) bool {
			isWhole := func(y operand) bool { return !y.scalar && y.id == id && y.repeat == 1 }
			return n.op == loops.Mul && len(n.in) == 2 && slices.ContainsFunc(n.in, isWhole)
		})
		if o := a.soleOutput(valueID, uses); o >= 0 && outputs[o].dtype == program.Float {
			factor := a.nodes[valueID].in[0]
			if !factor.scalar && factor.id == id {
				factor = a.nodes[valueID].in[1]
			}
			if number(factor) && (factor.scalar || factor.id < id) {
				s.value, in[quantizedScale] = o, factor
			}
		}
		if o := slices.Index(a.outputs, id); o >= 0 && outputs[o].at == passes.Int8 {
			s.codes = o
		}
		if s == (sinks{-1, -1, -1}) {
			continue // it would save nothing
		}
		if d := a.nodes[x.id]; d.op == loops.Div && !d.in[0].scalar && d.in[0].repeat == 1 &&
			!a.nodes[d.in[0].id].shared && number(d.in[1]) &&
			uses[x.id] == 1+min(1, s.near+1) {
			in[quantizedNumbers], in[quantizedDivisor], whole.divides = d.in[0], d.in[1], true
		}
		whole.op, whole.in, whole.sinks = opQuantize, in, s
		for _, o := range []int{s.codes, s.value, s.near} {
			if o >= 0 {
				a.outputs[o] = id
			}
		}
	}
}

// only returns the single needed node for which condition holds, or −1.
func (a *analysis) only(condition func(n *node) bool) int {
	found := -1
	for id, used := range a.uses() {
		if used > 0 && condition(&a.nodes[id]) {
			if found >= 0 {
				return -1
			}
			found = id
		}
	}
	return found
}

func (a *analysis) soleOutput(id int, uses []int) int {
	if id < 0 || uses[id] != 1 {
		return -1
	}
	o := slices.Index(a.outputs, id)
	if o < 0 || a.p.Input(a.p.Outputs[o].Name) >= 0 { // which may share its memory
		return -1
	}
	return o
}

func (n *node) writes(output int) bool {
	return n.op == opQuantize && (n.sinks.codes == output || n.sinks.value == output ||
		n.sinks.near == output)
}

// quantize executes an opQuantize, beginning at row first.
func (w *worker) quantize(r *run, ins *instruction, first int) {
	numbers := w.values[ins.in[quantizedNumbers].id]
	length := len(numbers)
	for _, x := range ins.in[quantizedDivisor:] {
		if !x.scalar {
			length = min(length, x.repeat)
		}
	}
	to := loops.Quantized{Whole: w.values[ins.dst]}
	from, end := first*ins.size, first*ins.size+len(numbers)
	if o := ins.sinks.codes; o >= 0 {
		to.Codes = r.Outputs[o].([]int8)[from:end]
	}
	if o := ins.sinks.near; o >= 0 {
		to.Near = r.Outputs[o].([]bool)[from:end]
	}
	if o := ins.sinks.value; o >= 0 {
		switch m := r.Outputs[o].(type) {
		case []float32:
			to.Values = m[from:end]
		case []uint16:
			to.Short = m[from:end]
		}
	}
	number := func(i, at int) float32 {
		x := ins.in[i]
		if x.scalar {
			return w.env[x.id]
		}
		v := w.values[x.id]
		return v[at/x.repeat%len(v)] // cyclically, if all rows share it
	}
	q := loops.Quantizer{Divides: ins.divides, Low: number(quantizedLow, 0),
		High: number(quantizedHigh, 0), Distance: number(quantizedDistance, 0)}
	for at := 0; at < len(numbers); at += length {
		q.Divisor, q.Scale = number(quantizedDivisor, at), number(quantizedScale, at)
		q.Run(to.Part(at, at+length), numbers[at:at+length])
	}
}
