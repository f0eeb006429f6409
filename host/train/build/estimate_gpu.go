package build

import (
	"cmp"

	"github.com/cage-qat/cage/host/model/architecture"
)

// GPU says how a GPU computes a model, as far as memory depends on it.
type GPU struct {
	BFloat16       bool // products are in bfloat16
	Kernels        bool // programs of quantizers are kernels
	FusedAttention bool // attention is one operation, which has no scores in memory
}

// costs are bytes for each of the numbers that a step works with.
type costs struct {
	// Of each layer, from the forward to the backward pass: for the features of a token, those of its queries (keys and values are
	// repeated for all heads of them), and the inner ones of the feed-forward layer; for its queries and keys again where they are
	// normalized; for a number that is quantized, and a truth value and another number that its quantizer keeps; and for a score, where
	// there are scores.
	width, heads, hidden, normed, site, mask, residual, score float64
	// Beside the layer that is being computed.
	onceWidth, onceHidden, onceScore float64
	// For a score of the layer whose attention is being computed again.
	againScore float64
	// Of each layer that is computed again: its input.
	input float64
	// While the loss is computed: for a logit of a chunk, and for the features of a token.
	logit, lossWidth float64
	// Of each quantized weight, and at the end of the backward pass of each number of the embedding.
	quantized, embedding float64
}

// Fitted to what XLA says of the steps in testdata/memory of package assembly, whose test compares the two. Of againScore that is so for
// kernels only; the others are assumed.
var (
	costsOfKernels = costs{
		width: 15.1, heads: 4.9, hidden: 7.2, normed: 4, mask: 1.08, residual: 4.4, score: 4.1, onceWidth: 2.9, onceHidden: 4.8, onceScore: 15.4, againScore: 7.7,
		input: 4.8, logit: 6.25, lossWidth: 4, quantized: 5.2, embedding: 5,
	}
	costsOfGraphs = costs{
		width: 13.1, heads: 8.2, hidden: 6.8, normed: 4, mask: 2.7, residual: 4, score: 4, onceWidth: 8, onceHidden: 8, onceScore: 15, againScore: 7.7,
		input: 6.8, logit: 6.2, lossWidth: 4, quantized: 4.2, embedding: 6.7,
	}
	costsInFloat32 = costs{
		width: 21.1, heads: 8, hidden: 12.3, normed: 8, site: 6.3, mask: 1, residual: 4, score: 4.1, onceWidth: 8, onceHidden: 8, onceScore: 0.8, againScore: 4.9,
		input: 2, logit: 4.7, lossWidth: 4, quantized: 6.5, embedding: 4,
	}
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

// rotated is how many bytes a quantized weight takes that waits for the update, with its scale.
const rotated = 4.2

// gatheredBytes are those of a quantized value that is gathered from other GPUs: bfloat16.
const gatheredBytes = 2

// chunk is the largest number of logits that are in memory at once, where the loss is computed in chunks.
const chunk = 1 << 28

// distilledLogits is how often logits count where they are compared with a teacher's.
const distilledLogits = 4

// onGPU is [Estimate] for a GPU, where the whole step is one program: what it needs is the most of what it needs while the loss is
// computed, when all layers have left what their backward pass reads, and at its end, when all gradients are there.
func onGPU(m Sizes) Need {
	c := m.GPU.costs()
	tokens, context := float64(m.Batch)*float64(m.Context), float64(m.Context)
	if m.Piece > 0 {
		tokens = float64(m.Batch) * float64(m.Piece)
	}
	layers, embedding := float64(m.Layers), float64(m.Vocabulary)*float64(m.Width)
	width, heads, hidden := tokens*float64(m.Width), tokens*float64(cmp.Or(m.HeadWidth, m.Width)), tokens*float64(m.Hidden)
	scores := tokens * context * float64(m.Heads)
	if m.GPU.FusedAttention {
		scores = 0
	}
	block, attention := c.width*width+c.hidden*hidden, c.heads*heads
	if m.Normed {
		attention += c.normed * (heads + tokens*float64(m.KeyWidth))
	}
	once := c.onceWidth*width + c.onceHidden*hidden
	if m.Recompute == architecture.RecomputeAttention && !m.GPU.FusedAttention { // which keeps little by itself
		once += attention
		c.score, c.onceScore = 0, c.againScore
	} else {
		block += attention
	}
	logits := min(tokens*float64(m.Vocabulary), chunk)
	if m.Teacher.Parameters > 0 { // whole, and those of both
		logits = distilledLogits * tokens * float64(m.Vocabulary)
	}
	states, parameters := float64(max(1, m.StateShards)), float64(max(1, m.ParameterShards))
	n := Need{
		Parameters: wordBytes * m.Parameters / parameters, States: wordBytes * m.States / states, Quantized: c.quantized * m.Quantized / parameters,
		Teacher: wordBytes * m.Teacher.Parameters, Logits: c.logit*logits + c.lossWidth*width,
	}
	if m.Offload {
		n.Host = wordBytes * m.Offloadable / states
		n.States -= n.Host
	}
	if m.Forward {
		if m.Piece > 0 {
			n.Logits = c.logit * float64(m.Batch) * float64(m.Vocabulary)
			n.Caches = wordBytes * 2 * layers * float64(m.Batch) * context * float64(m.KeyWidth)
		}
		n.Blocks, n.Scores = once, c.onceScore*scores
		return n
	}
	block += (c.site*m.Activations + c.mask*m.Masks + c.residual*m.Residuals) / max(1, layers)
	if m.ParameterShards > 1 { // the whole of what is gathered is there too: of one layer, or of all that the backward pass will read
		gathered := gatheredBytes * m.Quantized
		if m.Recompute == architecture.RecomputeBlocks {
			gathered /= max(1, layers)
		}
		n.Quantized += gathered + 2*wordBytes*embedding
	}
	sums := wordBytes * measured * m.Measured
	if m.Accumulate > 1 {
		sums += wordBytes * m.Parameters / states
	}
	head, end := n, n
	head.Gradients, end.Gradients = sums+wordBytes*embedding, sums+wordBytes*m.Parameters/states+c.embedding*embedding
	end.Blocks, end.Scores, end.Logits = block+once, (c.score+c.onceScore)*scores, 0
	end.Quantized = rotated * m.Rotated / parameters
	if m.Recompute == architecture.RecomputeBlocks {
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
