// Command soap is the optimizer SOAP as a plugin (Vyas et al., "SOAP: Improving and
// Stabilizing Shampoo using Adam", 2024): Adam in the slowly turning eigenbases of
// Shampoo's factors. For a matrix G[R,C]:
//
//	first update:  L ← (1−βs)·GGᵀ,  R ← (1−βs)·GᵀG,  nothing else: u = 0
//	then:          Q_L, Q_R = eigenvectors of L, R
//	later updates, with t not counting the first:
//	  G' = Q_LᵀGQ_R
//	  m ← β1·m + (1−β1)·G'    v ← β2·v + (1−β2)·G'²
//	  u = Q_L(m/(√v + ε))Q_Rᵀ·√(1−β2ᵗ)/(1−β1ᵗ)
//	  L ← βs·L + (1−βs)·GGᵀ   R ← βs·R + (1−βs)·GᵀG
//	  every freq updates: a step of power iteration on Q_L and Q_R (refresh.go)
//
// ε is added before the correction, unlike in Adam. An axis that is longer than
// max_precond_dim has no factor and is not rotated, nor are vectors unless
// precondition_1d is set.
//
// The published code updates the bases at the end of an update, from the factors of this update,
// and nothing reads them before the next update. Here a refresh is therefore at the beginning of
// the next update. Update itself changes the factors, so there is nothing to observe.
//
// The host applies the decay: before the update or, with train.decay = "last", after it, as in the
// published code. The difference is of second order in the rate.
package main

import (
	"fmt"
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// soap implements [sdk.Optimizer].
type soap struct{}

var (
	_ sdk.Optimizer = soap{}
	_ sdk.Refresher = soap{}
)

// The names of the state tensors; for factors and bases the index of the axis is appended.
const (
	stateM      = "m"
	stateV      = "v"
	stateFactor = "factor"
	stateBasis  = "basis"
)

// sameAsBeta2 is the value of shampoo_beta that selects the value of beta2.
const sameAsBeta2 = -1

// Describe declares the parameters. The defaults are the published ones.
func (soap) Describe() sdk.Description {
	return sdk.Description{
		Name:    "soap",
		Version: "1.0.0",
		Doc:     "SOAP (Vyas et al. 2024): Adam in the eigenbases of Shampoo's factors; decay is set by train.weight_decay.",
		Parameters: []sdk.Parameter{
			sdk.Float("beta1", 0.95, 0, 0.999999, "decay rate of the first moment"),
			sdk.Float("beta2", 0.95, 0, 0.999999, "decay rate of the second moment"),
			sdk.Float("shampoo_beta", sameAsBeta2, -1, 0.999999, "decay rate of the factors; below 0: beta2"),
			sdk.Float("eps", 1e-8, 1e-30, 1, "added to the root of the second moment, before its correction"),
			sdk.Int("freq", 10, 1, 1000000, "updates from one refresh of the bases to the next"),
			sdk.Int("max_precond_dim", 10000, 1, 1<<20, "longest axis that is rotated"),
			sdk.Bool("precondition_1d", false, "rotate vectors too"),
			sdk.Bool("normalize", false, "scale the direction to a root mean square of 1 before the corrections"),
			sdk.Bool("bias_correction", true, "correct the moments for their start at zero"),
		},
		Claims: []sdk.Claim{{Name: sdk.ClaimStill}, {Name: sdk.ClaimDescent, Value: 1e-3}},
	}
}

// Init initializes moments and factors with zeros and the bases with the identity.
func (soap) Init(b *program.Builder, _ program.Value, t sdk.Tensor) (sdk.State, error) {
	moments := slices.Clone(t.Shape)
	if flipped(t) {
		slices.Reverse(moments)
	}
	state := sdk.State{stateM: b.Zeros(moments...), stateV: b.Zeros(moments...)}
	for _, axis := range rotated(t) {
		state[name(stateFactor, axis)] = b.Zeros(t.Shape[axis], t.Shape[axis])
		state[name(stateBasis, axis)] = identity(b, t.Shape[axis])
	}
	return state, nil
}

// Update writes one step. In the first step the gradient has weight 0 in the moments, so that they
// and u are zero.
func (soap) Update(b *program.Builder, in sdk.UpdateInput, t sdk.Tensor) (program.Value, sdk.State, error) {
	next := sdk.State{}
	beta := shampooBeta(t)
	for _, axis := range rotated(t) {
		basis, factor := name(stateBasis, axis), name(stateFactor, axis)
		next[basis] = in.State[basis]
		others := program.OtherAxes(len(t.Shape), []int{axis})
		old := in.State[factor].Scale(beta)
		gram := in.Gradient.Dot(in.Gradient, [2][]int{others, others}, [2][]int{})
		next[factor] = old.Add(gram.Scale(1 - beta))
	}
	g := rotate(in.Gradient, in.State, t)
	beta1, beta2 := t.Float("beta1"), t.Float("beta2")
	live := in.Step.Gt(b.Const(1)).Convert(program.Float)
	m := in.State[stateM].Scale(beta1).Add(g.Mul(live.Scale(1 - beta1)))
	v := in.State[stateV].Scale(beta2).Add(g.Square().Mul(live.Scale(1 - beta2)))
	next[stateM], next[stateV] = m, v

	u := m.Div(v.Sqrt().Shift(t.Float("eps")))
	factor, normalize, correct := b.Const(1), t.Bool("normalize"), t.Bool("bias_correction")
	if normalize { // in the rotated bases, as rotations preserve norms
		factor = factor.Div(rms(u).Shift(1e-30))
	}
	if correct {
		updates := in.Step.Shift(-1).Max(b.Const(1)) // the first update does not count; its u is 0
		c1, c2 := correction(updates, beta1), correction(updates, beta2)
		factor = factor.Mul(c2.Sqrt().Div(c1))
	}
	if normalize || correct {
		u = u.Mul(factor)
	}
	return rotateBack(u, in.State, t), next, nil
}

// correction returns 1 − βᵗ as −expm1(t·log β): βᵗ in binary32 would lose the digits of 1 − βᵗ for
// β close to 1 and small t.
func correction(updates program.Value, beta float64) program.Value {
	if beta == 0 {
		return updates.Builder().Const(1)
	}
	return updates.Scale(math.Log(beta)).Expm1().Neg()
}

// rms returns the root mean square of all elements. Rows are summed first: in binary32, a single
// running sum over many squares would lose small terms.
func rms(u program.Value) program.Value {
	size := u.Type().Size()
	u = u.Square()
	for axis := u.Type().Rank() - 1; axis >= 0; axis-- {
		u = u.ReduceSum(axis)
	}
	return u.Scale(1 / float64(size)).Sqrt()
}

func shampooBeta(t sdk.Tensor) float64 {
	if beta := t.Float("shampoo_beta"); beta >= 0 {
		return beta
	}
	return t.Float("beta2")
}

// rotated lists the axes that have a factor and a basis.
func rotated(t sdk.Tensor) []int {
	if len(t.Shape) == 1 && !t.Bool("precondition_1d") {
		return nil
	}
	var axes []int
	for axis, d := range t.Shape {
		if d <= t.Int("max_precond_dim") {
			axes = append(axes, axis)
		}
	}
	return axes
}

// name returns the full name of the state tensor of the given kind for an axis.
func name(kind string, axis int) string { return fmt.Sprint(kind, axis) }

func main() { sdk.ServeOptimizer(soap{}) }
