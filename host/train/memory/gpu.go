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

// costs are bytes for each of the numbers that a step works with.
type costs struct {
	// Of each layer, from the forward to the backward pass: for the features of a token, of its queries, keys, values and the inner
	// ones of the feed-forward layer; for its queries and keys again where they are normalized; for a truth value and another
	// number that a quantizer of activations keeps; and for a score, where there are scores.
	width, heads, keys, hidden, normed, mask, residual, score float64
	// Beside the layer that is being computed.
	onceWidth, onceHidden, onceScore float64
	// Of each layer that is computed again: its input.
	input float64
	// While the loss is computed: for a logit of a chunk, and for the features of a token.
	logit, lossWidth float64
	// Of each quantized weight, and at the end of the backward pass of each number of the embedding.
	quantized, embedding float64
}

// What XLA says of the steps in testdata of package assembly, whose test compares the two, was taken for these.
var (
	costsOfKernels = costs{width: 8.6, heads: 5.9, keys: 2.5, hidden: 7.4, normed: 4, mask: 1.07, residual: 2, score: 4.1,
		onceWidth: 8.4, onceHidden: 3.1, onceScore: 15, input: 4.4, logit: 6.2, lossWidth: 4.5, quantized: 4.9, embedding: 5.6}
	costsOfGraphs = costs{width: 13.8, heads: 4.1, keys: 2.1, hidden: 6.7, normed: 4, mask: 2.6, residual: 4, score: 4.1,
		onceWidth: 7.5, onceHidden: 7.8, onceScore: 15, input: 4.4, logit: 6.2, lossWidth: 4.1, quantized: 3.7, embedding: 5.6}
	costsInFloat32 = costs{width: 24, heads: 8, keys: 4, hidden: 13, normed: 8, mask: 2.6, residual: 4, score: 8,
		onceWidth: 15, onceHidden: 15, onceScore: 15, input: 4.4, logit: 8, lossWidth: 8, quantized: 6, embedding: 5.6}
)

// costs are those of the way in which a GPU computes.
func (g GPU) costs() costs {
	switch {
	case g.Kernels:
		return costsOfKernels
	case g.BFloat16:
		return costsOfGraphs
	default:
		return costsInFloat32
	}
}

// chunk is the largest number of logits that are in memory at once, where the loss is computed in chunks.
const chunk = 1 << 28

// onGPU is [Estimate] for a GPU, where the whole step is one program: what it needs is the most of what it needs while the loss is
// computed, when all layers have left what their backward pass reads, and at its end, when all gradients are there.
func onGPU(m Model) Need {
	c := m.GPU.costs()
	tokens, context := float64(m.Batch)*float64(m.Context), float64(m.Context)
	if m.Piece > 0 {
		tokens = float64(m.Batch) * float64(m.Piece)
	}
	layers, embedding := float64(m.Layers), float64(m.Vocabulary)*float64(m.Width)
	width, heads, keys, hidden := tokens*float64(m.Width), tokens*float64(cmp.Or(m.HeadWidth, m.Width)), tokens*float64(m.KeyWidth), tokens*float64(m.Hidden)
	scores := tokens * context * float64(m.Heads)
	if m.GPU.FusedAttention {
		scores = 0
	}
	block := c.width*width + c.heads*heads + 2*c.keys*keys + c.hidden*hidden
	if m.Normed {
		block += c.normed * (heads + keys)
	}
	once := c.onceWidth*width + c.onceHidden*hidden
	logits := min(tokens*float64(m.Vocabulary), chunk)
	if !m.GPU.BFloat16 || m.Teacher.Parameters > 0 {
		logits = tokens * float64(m.Vocabulary)
	}
	n := Need{
		Parameters: wordBytes * m.Parameters, States: wordBytes * m.States, Quantized: c.quantized * m.Quantized,
		Teacher: wordBytes * m.Teacher.Parameters, Logits: c.logit*logits + c.lossWidth*width,
	}
	if m.Forward {
		if m.Piece > 0 {
			n.Logits = c.logit * float64(m.Batch) * float64(m.Vocabulary)
			n.Caches = wordBytes * 2 * layers * float64(m.Batch) * context * float64(m.KeyWidth)
		}
		n.Blocks, n.Scores = once, c.onceScore*scores
		return n
	}
	if m.Teacher.Parameters > 0 {
		n.Logits *= 4
	}
	block += (c.mask*m.Masks + c.residual*m.Residuals) / max(1, layers)
	sums := wordBytes * measured * m.Measured
	if m.Accumulate > 1 {
		sums += wordBytes * m.Parameters
	}
	head, end := n, n
	head.Gradients, end.Gradients = sums+wordBytes*embedding, sums+wordBytes*m.Parameters+c.embedding*embedding
	end.Blocks, end.Scores, end.Quantized, end.Logits = block+once, (c.score+c.onceScore)*scores, 0, 0
	if m.Recompute {
		head.Blocks = layers * c.input * width
		if beside := end.Blocks + end.Scores; beside > head.Logits { // the logits are gone when the last layer is computed again
			head.Blocks, head.Scores, head.Logits = head.Blocks+end.Blocks, end.Scores, 0
		}
	} else {
		head.Blocks, head.Scores = layers*block, layers*c.score*scores
		if beside := once + c.onceScore*scores; beside > head.Logits {
			head.Blocks, head.Scores, head.Logits = head.Blocks+once, head.Scores+c.onceScore*scores, 0
		}
	}
	if head.Total() > end.Total() {
		return head
	}
	return end
}
