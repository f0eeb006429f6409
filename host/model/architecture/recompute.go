package architecture

// Recompute says what the backward pass of a language model computes again, instead of keeping it
// from the forward pass.
type Recompute string

// What can be computed again, from little to much.
const (
	RecomputeNone      Recompute = "none"
	RecomputeAttention Recompute = "attention" // queries, keys, values and scores of each layer
	RecomputeBlocks    Recompute = "blocks"    // all that is inside each block (gradient checkpointing)
)
