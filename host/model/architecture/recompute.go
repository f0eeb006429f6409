package architecture

// Recompute selects what the backward pass of a language model recomputes, instead of saving it in
// the forward pass.
type Recompute string

// The degrees of recomputation, from little to much.
const (
	RecomputeNone      Recompute = "none"
	RecomputeAttention Recompute = "attention" // queries, keys, values and scores of each layer
	RecomputeBlocks    Recompute = "blocks"    // everything inside each block (gradient checkpointing)
)
