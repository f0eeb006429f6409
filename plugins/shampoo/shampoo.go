// Command shampoo implements the Shampoo optimizer as a plugin (Gupta, Koren & Singer 2018; Anil et
// al. 2020; Shi et al., "A Distributed Data-Parallel PyTorch Implementation of the Distributed
// Shampoo Optimizer", 2023). For a matrix G[R,C]:
//
//	L ← β2·L + (1−β2)·GGᵀ    R ← β2·R + (1−β2)·GᵀG     (weight 1 when β2 = 1: sums)
//	m ← β1·m + (1−β1)·G      v ← β2'·v + (1−β2')·G²
//	every few updates:  L⁻ = (L̂ + εI)^(−1/4),  R⁻ = (R̂ + εI)^(−1/4)
//	A = m̂/(√v̂ + ε')                                    Adam's direction
//	u = L⁻m̂R⁻·‖A‖/(‖L⁻m̂R⁻‖ + 1e-16)                    grafting: the norm of A
//
// where a hat denotes bias correction, division by 1 − βᵗ. Before the first root, u = A. A vector
// has one factor and the exponent −1/2. An axis that is too long is divided into blocks
// (blocks.go), each preconditioned and grafted separately.
//
// The factors change in every update, the inverse roots only in refreshes. The host applies
// decoupled weight decay.
package main

import (
	"cmp"
	"fmt"
	"iter"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

type shampoo struct{}

var (
	_ sdk.Optimizer = shampoo{}
	_ sdk.Refresher = shampoo{}
	_ sdk.Selective = shampoo{}
)

// Names of the state tensors. For factors and roots the index of the axis is appended and, if there
// are blocks of several shapes, the suffix of the region.
const (
	stateM      = "m"
	stateV      = "v"
	stateFactor = "factor"
	stateRoot   = "root"
)

// Describe declares the parameters. The defaults are those of a public speed record in training
// language models, except max_precond_dim, which is 8192 there and slow on a CPU.
func (shampoo) Describe() sdk.Description {
	return sdk.Description{
		Name:    "shampoo",
		Version: "1.1.0",
		Doc: "Shampoo (Gupta et al. 2018; Shi et al. 2023): inverse roots of Kronecker factors " +
			"as preconditioners, grafted to Adam; decay is set by train.weight_decay.",
		Parameters: []sdk.Parameter{
			sdk.Float("beta1", 0.95, 0, 0.999999,
				"decay rate of the first moment; 0: the gradient itself"),
			sdk.Float("beta2", 0.95, 0, 1, "decay rate of the factors; 1: their sum over all updates"),
			sdk.Float("eps", 1e-12, 1e-30, 1, "added to the eigenvalues of the factors"),
			sdk.Bool("graft", true, "give each block's direction the norm of Adam's; "+
				"if false, the rate must suit Shampoo's own norm"),
			sdk.Float("graft_beta2", 0.95, 0, 1,
				"grafting: decay rate of the second moment; 1: its sum over all updates (AdaGrad)"),
			sdk.Float("graft_eps", 1e-8, 1e-30, 1, "grafting: added to the root of the second moment"),
			sdk.Int("freq", 10, 1, 1000000,
				"number of updates from one refresh of the inverse roots to the next"),
			sdk.Int("start", 0, 0, 1000000, "update of the first refresh; before it, Adam's direction "+
				"is used (without grafting, the moment); 0: freq"),
			sdk.Int("max_precond_dim", 256, 1, 1<<20, "longest axis that has one factor; a longer one "+
				"is divided into blocks of this size: the work of a refresh grows with its square, "+
				"that of an update linearly"),
			sdk.Bool("embeddings", false, "also accept the embedding and the head"),
		},
		Claims: []sdk.Claim{
			{Name: sdk.ClaimStill},
			{Name: sdk.ClaimDescent, Value: 1e-3, When: map[string]any{"graft": true}},
		},
	}
}

// Accepts returns true for vectors and matrices. It excludes the embedding and the head, unless
// configured otherwise: the factor of the vocabulary is large and its gradient sparse.
func (shampoo) Accepts(t sdk.Tensor) bool {
	vocabulary := t.Role == sdk.TensorEmbedding || t.Role == sdk.TensorHead
	return (len(t.Shape) == 1 || len(t.Shape) == 2) && (!vocabulary || t.Bool("embeddings"))
}

// Init initializes factors and moments with zeros and the inverse roots with the identity. There is
// no first moment if β1 = 0, and no second one without grafting.
func (shampoo) Init(b *program.Builder, _ program.Value, t sdk.Tensor) (sdk.State, error) {
	state := sdk.State{}
	if t.Float("beta1") > 0 {
		state[stateM] = b.Zeros(t.Shape...)
	}
	if t.Bool("graft") {
		state[stateV] = b.Zeros(t.Shape...)
	}
	for f := range factors(t) {
		state[f.name(stateFactor)] = b.Zeros(f.shape()...)
		state[f.name(stateRoot)] = identity(b, f.shape())
	}
	return state, nil
}

// Observe adds the gradient to the factors.
func (shampoo) Observe(_ *program.Builder, in sdk.UpdateInput, t sdk.Tensor) (sdk.State, error) {
	next := sdk.State{}
	for f := range factors(t) {
		name, g := f.name(stateFactor), f.region.take(in.Gradient)
		// Axis 0 indexes the stacked blocks.
		others := program.OtherAxes(len(f.region)+1, []int{0, f.axis + 1})
		gram := g.Dot(g, [2][]int{others, others}, eachBlock)
		next[name] = average(in.State[name], gram, t.Float("beta2"))
	}
	return next, nil
}

// RefreshAt requests a refresh at update start, and at every later multiple of freq.
func (shampoo) RefreshAt(t sdk.Tensor) sdk.Due {
	freq := t.Int("freq")
	return sdk.Due{First: start(t), Next: freq, Every: freq}
}

// Refresh computes the inverse roots.
func (shampoo) Refresh(_ *program.Builder, in sdk.RefreshInput, _ bool,
	t sdk.Tensor) (sdk.State, error) {
	next := sdk.State{}
	for f := range factors(t) {
		a, root := in.State[f.name(stateFactor)], f.name(stateRoot)
		w := a.EighValues().Div(sdk.BiasCorrection(in.Step, t.Float("beta2")))
		power := 1 / float64(2*len(t.Shape))
		next[root] = inverseRoot(w, a.EighVectors(), in.State[root], power, t.Float("eps"))
	}
	return next, nil
}

// start returns the update of the first refresh.
func start(t sdk.Tensor) int { return cmp.Or(t.Int("start"), t.Int("freq")) }

// factor identifies the Kronecker factor of one axis of the blocks of a region.
type factor struct {
	region region
	axis   int // of the blocks, from 0
}

func factors(t sdk.Tensor) iter.Seq[factor] {
	return func(yield func(factor) bool) {
		for _, r := range regions(t) {
			for axis := range r {
				if !yield(factor{r, axis}) {
					return
				}
			}
		}
	}
}

// name returns the full name of the factor's state tensor of the given kind.
func (f factor) name(kind string) string {
	return fmt.Sprint(kind, f.axis, f.region.suffix())
}

// shape returns the shape of a stack with one square matrix per block.
func (f factor) shape() []int {
	blocks, size := 1, f.region[f.axis].size
	for _, s := range f.region {
		blocks *= s.count
	}
	return []int{blocks, size, size}
}

func main() { sdk.ServeOptimizer(shampoo{}) }
