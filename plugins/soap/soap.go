// Command soap implements the SOAP optimizer as a plugin (Vyas et al., "SOAP: Improving and
// Stabilizing Shampoo using Adam", 2024): Adam in the slowly changing eigenbases of Shampoo's
// factors. For a matrix G[R,C]:
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
// ε is added before the bias correction, unlike in Adam. Vectors, and axes that are longer than
// max_precond_dim, have no factor and are not rotated.
//
// The published code updates the bases at the end of an update, from its factors. Here the refresh
// does so at the beginning of the next update, before which nothing reads the bases. Update itself
// changes the factors, so there is nothing to observe.
//
// The host applies the decay: before the update or, with train.decay = "last", after it, as in the
// published code. The difference is of second order in the rate.
package main

import (
	"fmt"
	"slices"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

type soap struct{}

var _ sdk.Refresher = soap{}

// Names of the state tensors; for factors and bases the index of the axis is appended.
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
		Version: "1.1.0",
		Doc: "SOAP (Vyas et al. 2024): Adam in the eigenbases of Shampoo's factors; decay is set " +
			"by train.weight_decay.",
		Parameters: []sdk.Parameter{
			sdk.Float("beta1", 0.95, 0, 0.999999, "decay rate of the first moment"),
			sdk.Float("beta2", 0.95, 0, 0.999999, "decay rate of the second moment"),
			sdk.Float("shampoo_beta", sameAsBeta2, -1, 0.999999,
				"decay rate of the factors; below 0: beta2"),
			sdk.Float("eps", 1e-8, 1e-30, 1, "added to the root of the second moment, before its "+
				"correction"),
			sdk.Int("freq", 10, 1, 1000000, "updates from one refresh of the bases to the next"),
			sdk.Int("max_precond_dim", 10000, 1, 1<<20, "longest axis that is rotated"),
		},
		Claims: []sdk.Claim{{Name: sdk.ClaimStill}, {Name: sdk.ClaimDescent, Value: 1e-3}},
	}
}

// Init initializes moments and factors with zeros and the bases with the identity.
func (soap) Init(b *program.Builder, _ program.Value, t sdk.Tensor) (sdk.State, error) {
	if len(t.Shape) > 2 {
		return nil, sdk.Refuse("the tensor has %d axes: soap updates vectors and matrices", len(t.Shape))
	}
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

// Update writes the program for one step. In the first step the gradient has weight 0 in the
// moments, so that they and u are zero.
func (soap) Update(b *program.Builder, in sdk.UpdateInput,
	t sdk.Tensor) (program.Value, sdk.State, error) {
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

	updates := in.Step.Shift(-1).Max(b.Const(1)) // the first update does not count; its u is 0
	c1, c2 := sdk.BiasCorrection(updates, beta1), sdk.BiasCorrection(updates, beta2)
	u := m.Div(v.Sqrt().Shift(t.Float("eps"))).Mul(c2.Sqrt().Div(c1))
	return rotateBack(u, in.State, t), next, nil
}

func shampooBeta(t sdk.Tensor) float64 {
	if beta := t.Float("shampoo_beta"); beta >= 0 {
		return beta
	}
	return t.Float("beta2")
}

// rotated lists the axes that have a factor and a basis.
func rotated(t sdk.Tensor) []int {
	var axes []int
	for axis, d := range t.Shape {
		if len(t.Shape) == 2 && d <= t.Int("max_precond_dim") {
			axes = append(axes, axis)
		}
	}
	return axes
}

// name returns the full name of the state tensor of the given kind for an axis.
func name(kind string, axis int) string { return fmt.Sprint(kind, axis) }

func identity(b *program.Builder, n int) program.Value {
	index := program.Type{DType: program.Int, Shape: []int{n, n}}
	return b.Iota(index, 0).Eq(b.Iota(index, 1)).Convert(program.Float)
}

func main() { sdk.ServeOptimizer(soap{}) }
