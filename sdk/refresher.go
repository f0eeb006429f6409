package sdk

import (
	"fmt"
	"math"

	"github.com/cage-qat/cage/sdk/program"
)

// Refresher is an optimizer with preconditioners: parts of its state that need
// factorizations, which are too costly for every update. The host runs a refresh program
// every few updates, and only there are factorizations and sorting possible
// (program.OpQR, OpEighValues, OpEighVectors, OpSortColumns).
//
// Update t of a tensor runs Observe; then Refresh, if one is due at t; then Update. Each
// sees the state as the one before it left it.
type Refresher interface {
	// Observe builds the statistics of this update's gradient that a refresh reads. It
	// returns only the state tensors that it changes, which may be none. It is part of
	// every update, even if no refresh is ever due.
	Observe(b *program.Builder, in UpdateInput, t Tensor) (State, error)
	// Refresh builds the renewed state tensors and returns only those, at least one.
	// The program of the first refresh may differ from that of the others; first
	// says whether it is the one that is asked for.
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

// Due says at which updates t = 1, 2, … something happens: at First, then at those of Next,
// Next + Every, Next + 2·Every, … that come after First. If First is 0, it never happens,
// and Next and Every must be 0; if Every is 0, it happens only once, and Next must be 0.
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

// check says what is wrong with d.
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
