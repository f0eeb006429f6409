package client

import (
	"context"
	"fmt"

	"github.com/cage-qat/cage/sdk"
	pb "github.com/cage-qat/cage/sdk/internal/wire/cage/plugin/v1"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// Layout says where the tensors of an opaque optimizer are in the memory that it shares
// with its host. Places are in bytes, and multiples of 64.
type Layout struct {
	Bytes   int64
	Tensors []Placed
}

// Placed is a tensor of an opaque optimizer with its places.
type Placed struct {
	sdk.Tensor
	// State is that of the optimizer's answer for the tensor.
	State []spec.Tensor
	// RateFactor is what the schedule's rate is multiplied by.
	RateFactor float64
	// X and Gradient are where the plugin reads, Direction is where it writes.
	X, Gradient, Direction int64
	// States has two places for each state tensor: even steps read the first and write the
	// second, odd ones the other way around.
	States [][2]int64
}

// Arrange gives every tensor its places; those in list are set by it.
func Arrange(list []Placed) Layout {
	l := Layout{Tensors: make([]Placed, len(list))}
	place := placing(&l.Bytes)
	for i, t := range list {
		t.X, t.Gradient, t.Direction = place(t.Shape), place(t.Shape), place(t.Shape)
		t.States = nil
		for _, s := range t.State {
			t.States = append(t.States, [2]int64{place(s.Shape), place(s.Shape)})
		}
		l.Tensors[i] = t
	}
	return l
}

// placing returns a function that finds the next place for a tensor, and adds its size to bytes.
func placing(bytes *int64) func(shape []int) int64 {
	return func(shape []int) int64 {
		at := *bytes
		*bytes += (4*program.FloatType(shape...).Size() + 63) &^ 63
		return at
	}
}

// Attach hands the memory over: the file at the path, which must have the layout's size.
func (o *Optimizer) Attach(ctx context.Context, path string, l Layout) error {
	m := &pb.AttachRequest{Path: path, Bytes: uint64(l.Bytes)}
	for _, t := range l.Tensors {
		tensor, err := toTensor(t.Tensor)
		if err != nil {
			return err
		}
		a := &pb.AttachedTensor{Tensor: tensor, X: uint64(t.X), Gradient: uint64(t.Gradient), Direction: uint64(t.Direction), RateFactor: t.RateFactor}
		for _, s := range t.States {
			a.State = append(a.State, &pb.AttachedState{Even: uint64(s[0]), Odd: uint64(s[1])})
		}
		m.Tensors = append(m.Tensors, a)
	}
	_, err := call(ctx, o.rpc.Attach, m)
	return err
}

// Step is what an opaque optimizer is told of an update.
type Step struct {
	// Step is the number of the update, from 1; Steps is that of the whole run.
	Step, Steps int
	// Rate is the schedule's; Loss is that of the step.
	Rate, Loss float64
	// Odd says that the states are in their second places.
	Odd bool
}

// Step asks for an update of all attached tensors. When it returns without an error, all
// directions and next states are written. An error may be a [*Mistake], or that of the
// call itself, as a gRPC status.
func (o *Optimizer) Step(ctx context.Context, s Step) error {
	if s.Step < 1 || s.Steps < s.Step {
		return fmt.Errorf("step %d of %d", s.Step, s.Steps)
	}
	_, err := call(ctx, o.rpc.Step, &pb.StepRequest{Step: uint64(s.Step), Steps: uint64(s.Steps), Rate: s.Rate, Loss: s.Loss, Odd: s.Odd})
	return err
}
