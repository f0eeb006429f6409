// Package inspect shows a plugin to its author: what its programs cost, and what becomes one kernel.
package inspect

import (
	"errors"
	"fmt"

	"github.com/cage-qat/cage/host/compute/triton"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// Part is a program of a training step, with its cost.
type Part struct {
	Name    string
	Program *program.Program
	// Operations and Products are counts per element of the tensor. Bytes is the size of the
	// inputs and outputs, in float32, per element.
	Operations, Products, Bytes float64
	// Passes is the number of reads of the tensor if each pass ends at a reduction, product or
	// rotation.
	Passes int
	// Kernel describes the part that is fused into one GPU kernel, or the reason why none is.
	Kernel string
	// Text is the kernel; nil if there is none.
	Text *triton.Kernel
}

// Passes returns the forward and the backward pass of a quantizer at a site of the given shape. The
// backward pass is absent if gradients pass unchanged.
func Passes(q spec.Quantizer, shape []int) ([]Part, error) {
	split, err := q.Split()
	if err != nil {
		return nil, err
	}
	parts := []Part{NewPart("forward", split.Forward, shape)}
	if len(split.Backward.Nodes) > 0 {
		parts = append(parts, NewPart("backward", split.Backward, shape))
	}
	return parts, nil
}

// NewPart analyzes a program for a tensor of the given shape.
func NewPart(name string, p *program.Program, shape []int) Part {
	cost, n := costOf(p), float64(program.FloatType(shape...).Size())
	bytes := int64(0)
	for _, in := range p.Inputs {
		bytes += size(in.Type)
	}
	for _, o := range p.Outputs {
		bytes += size(p.TypeOf(o.Value))
	}
	part := Part{Name: name, Program: p, Bytes: float64(bytes) / n,
		Operations: float64(cost.operations) / n, Products: float64(cost.products) / n, Passes: cost.passes}
	part.Kernel, part.Text = kernel(p, int(n)/shape[len(shape)-1])
	return part
}

// size returns the size of a value in bytes.
func size(t program.Type) int64 {
	if t.DType == program.Bool {
		return t.Size()
	}
	return 4 * t.Size()
}

func kernel(p *program.Program, rows int) (string, *triton.Kernel) {
	d, err := triton.Divide(p, rows)
	if err != nil {
		return why(err), nil
	}
	if d.Rows == nil {
		return "operations, because all of it needs whole tensors", nil
	}
	k, err := triton.New(d.Rows, rows, triton.LargestRow, nil)
	switch {
	case err != nil:
		return why(err), nil
	case d.Whole == nil:
		return "one kernel", k
	case len(d.Whole.Outputs) == 1:
		return "one kernel, and operations for one number", k
	}
	return fmt.Sprintf("one kernel, and operations for %d numbers", len(d.Whole.Outputs)), k
}

func why(err error) string {
	r, ok := errors.AsType[*triton.Refusal](err)
	switch {
	case !ok:
		return "operations: " + err.Error()
	case r.Node == "":
		return "operations, because " + r.Reason
	}
	return fmt.Sprintf("operations, because of %s: %s", r.Node, r.Reason)
}
