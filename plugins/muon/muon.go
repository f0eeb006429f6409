// Command muon implements the Muon optimizer as a plugin (Jordan et al. 2024; Liu et al., "Muon is
// Scalable for LLM Training", 2025): the momentum is replaced by an approximation of the nearest
// matrix with orthonormal rows or columns:
//
//	original:   buf ← μ·buf + (1−μ)·g   U = (1−μ)·g + μ·buf   u = O·√max(1, R/C)
//	rms_match:  buf ← μ·buf + g         U = g + μ·buf         u = O·0.2·√max(R, C)
//
// where O is computed from U[R,C] by Newton–Schulz steps (newtonschulz.go). Without Nesterov,
// U = buf. With rms_match the entries of u are about as large as Adam's, so Adam's learning rate
// and decay are suitable; the original variant needs a rate of about 0.02.
//
// Muon is meant for the matrices of hidden layers. A weight that stacks several matrices along its
// rows, such as queries, keys and values, is split, and each matrix is orthogonalized separately:
// together, their spectra would mix (split.go). Tensors that muon does not accept, such as
// embeddings and norms, are updated by the optimizer configured in [optimizer.rest].
package main

import (
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

type muon struct{}

var _ sdk.Selective = muon{}

// Values of the variant parameter.
const (
	variantOriginal = "original"
	variantRMSMatch = "rms_match"
)

const stateBuffer = "momentum"

// Describe declares the parameters.
func (muon) Describe() sdk.Description {
	return sdk.Description{
		Name:    "muon",
		Version: "1.1.0",
		Doc: "Muon (Jordan et al. 2024; Liu et al. 2025): momentum orthogonalized by Newton–Schulz " +
			"steps, for the matrices of hidden layers; decay is set by train.weight_decay.",
		Parameters: []sdk.Parameter{
			sdk.Choice("variant", variantRMSMatch, []string{variantRMSMatch, variantOriginal}, "momentum "+
				"and scale of the update: entries of the size of Adam's (a learning rate such as 1e-3), "+
				"or as first published (about 0.02)"),
			sdk.Float("momentum", 0.95, 0, 0.999999, "decay rate μ of the momentum; 0: none, no state"),
			sdk.Bool("nesterov", true, "orthogonalize gradient and buffer together, if there is momentum"),
			sdk.Int("ns_steps", 5, 1, 30, "Newton–Schulz steps"),
			sdk.Float("ns_a", 3.4445, -100, 100, "coefficient a of a step aX + bSX + cS²X, S = XXᵀ"),
			sdk.Float("ns_b", -4.7750, -100, 100, "coefficient b"),
			sdk.Float("ns_c", 2.0315, -100, 100, "coefficient c"),
			sdk.Float("eps", 1e-7, 1e-15, 1, "added to the norm by which the matrix is divided first"),
			sdk.Float("rms", 0.2, 0, 1000, "for rms_match: approximate root mean square of the update"),
		},
		Claims: []sdk.Claim{{Name: sdk.ClaimStill}, {Name: sdk.ClaimDescent, Value: 1e-3}},
	}
}

// Accepts returns true for the matrices of hidden layers.
func (muon) Accepts(t sdk.Tensor) bool {
	return t.Role == sdk.TensorMatrix && len(t.Shape) == 2
}

// Init initializes the momentum buffer with zeros; without momentum there is no state.
func (muon) Init(b *program.Builder, _ program.Value, t sdk.Tensor) (sdk.State, error) {
	if t.Float("momentum") == 0 {
		return nil, nil
	}
	return sdk.State{stateBuffer: b.Zeros(t.Shape...)}, nil
}

// Update writes the program for one step.
func (muon) Update(_ *program.Builder, in sdk.UpdateInput,
	t sdk.Tensor) (program.Value, sdk.State, error) {
	mu, u := t.Float("momentum"), in.Gradient
	if mu == 0 {
		return orthogonalizeParts(u, t), nil, nil
	}
	if t.Text("variant") == variantOriginal {
		u = u.Scale(1 - mu)
	}
	buffer := in.State[stateBuffer].Scale(mu).Add(u)
	if t.Bool("nesterov") {
		u = u.Add(buffer.Scale(mu))
	} else {
		u = buffer
	}
	return orthogonalizeParts(u, t), sdk.State{stateBuffer: buffer}, nil
}

func main() { sdk.ServeOptimizer(muon{}) }
