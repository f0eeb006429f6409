package client

import (
	"context"

	"github.com/cage-qat/cage/sdk"
	pb "github.com/cage-qat/cage/sdk/internal/wire/cage/plugin/v1"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// Layout holds the offsets of the tensors of an opaque optimizer in the memory that it shares
// with its host. Offsets are in bytes, and multiples of 64.
type Layout struct {
	Bytes   int64
	Tensors []Placed
}

// Placed is a tensor of an opaque optimizer together with its offsets.
type Placed struct {
	sdk.Tensor
	// State lists the state tensors, as in the optimizer's answer for the tensor.
	State []spec.Tensor
	// RateFactor multiplies the schedule's learning rate for this tensor.
	RateFactor float64
	// X, Gradient and Direction are offsets. The plugin reads the first two and writes Direction.
	X, Gradient, Direction int64
	// StateAt and NextAt hold the offsets of the state tensors, which the plugin reads, and of their
	// next values, which it writes.
	StateAt, NextAt []int64
}

// Arrange returns the layout with offsets for every tensor. Offsets in list are ignored.
func Arrange(list []Placed) Layout {
	l := Layout{Tensors: make([]Placed, len(list))}
	allocate := allocator(&l.Bytes)
	for i, t := range list {
		t.X, t.Gradient, t.Direction = allocate(t.Shape), allocate(t.Shape), allocate(t.Shape)
		t.StateAt, t.NextAt = nil, nil
		for _, s := range t.State {
			t.StateAt, t.NextAt = append(t.StateAt, allocate(s.Shape)), append(t.NextAt, allocate(s.Shape))
		}
		l.Tensors[i] = t
	}
	return l
}

func allocator(bytes *int64) func(shape []int) int64 {
	return func(shape []int) int64 {
		at := *bytes
		*bytes += (4*program.FloatType(shape...).Size() + 63) &^ 63
		return at
	}
}

// Attach makes the plugin map the shared memory: the file at path, which has the layout's size.
func (o *Optimizer) Attach(ctx context.Context, path string, l Layout) error {
	m := &pb.AttachRequest{Path: path, Bytes: uint64(l.Bytes)}
	for _, t := range l.Tensors {
		tensor, err := toTensor(t.Tensor)
		if err != nil {
			return err
		}
		a := &pb.AttachedTensor{Tensor: tensor, X: uint64(t.X), Gradient: uint64(t.Gradient),
			Direction: uint64(t.Direction), RateFactor: t.RateFactor,
			State: offsets(t.StateAt), Next: offsets(t.NextAt)}
		m.Tensors = append(m.Tensors, a)
	}
	_, err := call(ctx, o.rpc.Attach, m)
	return err
}

// Step holds the scalar inputs of an update by an opaque optimizer.
type Step struct {
	// Step is the number of the update, from 1; Steps is the number of steps of the run.
	Step, Steps int
	// Rate is the learning rate of the schedule; Loss is the loss of the step.
	Rate, Loss float64
}

// Step requests an update of all attached tensors. When it returns without an error, all
// directions and next states have been written. An error is a [*Mistake], or an error of
// the call itself, as a gRPC status.
func (o *Optimizer) Step(ctx context.Context, s Step) error {
	_, err := call(ctx, o.rpc.Step, &pb.StepRequest{Step: uint64(s.Step), Steps: uint64(s.Steps),
		Rate: s.Rate, Loss: s.Loss})
	return err
}
