package testrun

import (
	"maps"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// Carrier is an optimizer with one state, m, that both updates and refreshes write, and
// another, a, that only refreshes write. The direction is a.
type Carrier struct{}

// Describe implements sdk.Optimizer.
func (Carrier) Describe() sdk.Description { return sdk.Description{Name: "carrier"} }

// Init implements sdk.Optimizer.
func (Carrier) Init(b *program.Builder, _ program.Value, _ sdk.Tensor) (sdk.State, error) {
	return sdk.State{"a": b.Const(1), "m": b.Const(0), "n": b.Const(0)}, nil
}

// Observe implements sdk.Observer.
func (Carrier) Observe(_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor) (sdk.State, error) {
	return sdk.State{"n": in.State["n"].Shift(1)}, nil
}

// Refresh writes a' = a + n, m' = 2m − a + a·n + t, if n > 0.
func (Carrier) Refresh(b *program.Builder, in sdk.RefreshInput, _ bool, _ sdk.Tensor) (sdk.State, error) {
	a, m, n := in.State["a"], in.State["m"], in.State["n"]
	ok := n.Gt(b.Const(0))
	return sdk.State{"a": a.Add(n), "m": ok.Select(m.Scale(2).Sub(a).Add(a.Mul(n)).Add(in.Step), m)}, nil
}

// RefreshAt implements sdk.Refresher.
func (Carrier) RefreshAt(sdk.Tensor) sdk.Due { return sdk.Due{First: 2, Next: 4, Every: 3} }

// Update implements sdk.Optimizer.
func (Carrier) Update(b *program.Builder, in sdk.UpdateInput, t sdk.Tensor) (program.Value, sdk.State, error) {
	next := maps.Clone(in.State)
	next["m"] = in.State["m"].Shift(1)
	return b.Zeros(t.Shape...).Add(in.State["a"]), next, nil
}
