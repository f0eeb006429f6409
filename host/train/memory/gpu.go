package memory

import "cmp"

// GPU says how a GPU computes a model, as far as memory depends on it.
type GPU struct {
	BFloat16       bool // products are in bfloat16
	Kernels        bool // programs of quantizers are kernels
	FusedAttention bool // attention is one operation, which has no scores in memory
}

// AccuracyOnGPU is the share by which the estimate may be off on a GPU.
const AccuracyOnGPU = 0.15

// onGPU is [Estimate] for a GPU.
func onGPU(m Model) Need {
	tokens := float64(m.Batch) * float64(m.Context)
	width, heads, hidden := tokens*float64(m.Width), tokens*float64(cmp.Or(m.HeadWidth, m.Width)), tokens*float64(m.Hidden)
	return Need{Parameters: wordBytes * m.Parameters, States: wordBytes * m.States, Gradients: wordBytes * m.Parameters, Blocks: 2 * (width + heads + hidden)}
}
