package sdk

import (
	"fmt"
	"math"

	"github.com/cage-qat/cage/sdk/program"
)

// Refresher is an optimizer with preconditioners: parts of its state that are
// renewed every few updates by factorizations too costly for every one. The host
// runs the refresh program between two updates, where factorizations are possible
// (program.OpQR, OpEighValues, OpEighVectors), and not at all in most steps.
//
// Update t of a tensor is then: Observe; if a refresh is due at t, Refresh;
// Update. Each sees the state as the one before it left it.
type Refresher interface {
	// Observe builds the statistics that a refresh reads from the gradient of
	// this update. It returns only the state tensors that it changes; none
	// leaves everything to Update. It is part of every update, also where no
	// refresh is ever due.
	Observe(b *program.Builder, in UpdateInput, t Tensor) (State, error)
	// Refresh builds the renewed state tensors, and returns only those, at least
	// one. first asks for the program of the first refresh, which may differ.
	// It is called for the refreshes that are due.
	Refresh(b *program.Builder, in RefreshInput, first bool, t Tensor) (State, error)
	// RefreshAt says at which updates of the tensor a refresh is due.
	RefreshAt(t Tensor) Due
}

// RefreshInput is what a refresh may read.
type RefreshInput struct {
	// Step is the number t of the update that follows, a scalar float.
	Step program.Value
	// State is the state after Observe.
	State State
}

// Due says at which updates t = 1, 2, … something happens: at First, then at those
// of Next, Next + Every, Next + 2·Every, … that come after First. A zero First means
// never, a zero Every only once; the fields after a zero are zero.
type Due struct{ First, Next, Every int }

// At reports whether it is due at update t, and whether for the first time.
func (d Due) At(t int) (due, first bool) {
	switch {
	case d.First <= 0 || t < d.First:
		return false, false
	case t == d.First:
		return true, true
	case d.Every <= 0 || t < d.Next:
		return false, false
	}
	return (t-d.Next)%d.Every == 0, false
}

// check tells a mistake from a schedule.
func (d Due) check() error {
	switch {
	case min(d.First, d.Next, d.Every) < 0 || max(d.First, d.Next, d.Every) > math.MaxInt32:
		return fmt.Errorf("%+v: each must be 0 to %d", d, math.MaxInt32)
	case d.First == 0 && (d.Next != 0 || d.Every != 0):
		return fmt.Errorf("%+v: First = 0 means never, so Next and Every must be 0", d)
	case d.Every == 0 && d.Next != 0:
		return fmt.Errorf("%+v: Every = 0 means only once, so Next must be 0", d)
	}
	return nil
}
