package build

import (
	"cmp"
	"fmt"
	"sort"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/sdk/program"
)

// Sizes are what the memory of a run depends on. Those of a transformer are
// zero for a problem without data, which is small.
type Sizes struct {
	Layers, Width, Hidden, Heads, Vocabulary int
	HeadWidth                                int // features of a token's queries, all heads together; 0: Width
	KeyWidth                                 int // features of a token's keys, and also of its values
	// Normed says that queries and keys are normalized.
	Normed bool
	// Context is the number of tokens in a sequence, Batch the number of sequences computed at once, by each of the Replicas; 0
	// of these is 1. A step has Accumulate times as many; 0: once.
	Context, Batch, Replicas, Accumulate int
	// StateShards and ParameterShards are the numbers of GPUs among which states and gradients, and parameters, are divided; 0: 1.
	StateShards, ParameterShards int
	// GPU says how a GPU computes; nil: the CPU does.
	GPU *GPU
	// Recompute is what the backward pass computes again.
	Recompute architecture.Recompute
	// Forward says that this is an evaluation: no gradients, no optimizer.
	Forward bool
	// Piece is the number of tokens of each sequence that an evaluation reads at once to continue it, while caches hold
	// the keys and values of those before; 0: whole sequences.
	Piece int

	// Numbers of elements: of everything that is trained, of the part that has a
	// quantized copy, and of the optimizers' states.
	Parameters, Quantized, States float64
	// Rotated is the part of Quantized whose values products read rotated. A GPU keeps these until the update, which rotates them back.
	Rotated float64
	// Offloadable are those of the states that a GPU can keep in its machine's memory, and Offload says that it does.
	Offloadable float64
	Offload     bool
	// Activations is the number of activations that are quantized; Masks is the number of truth values, and Residuals that of other
	// numbers, which their quantizers keep from the forward pass for the backward pass. They are counted for a GPU only.
	Activations, Masks, Residuals float64
	// Teacher is the model whose predictions are learned; zero if there is none.
	Teacher Teacher
	// Measured is the number of elements of gradients that are also computed without quantization, for a measure.
	Measured float64
	// Samples is the number of samples of codes that are kept, summed over all coordinates.
	Samples float64
	// Workspace is the number of elements that the update of the most demanding tensor needs to work with.
	Workspace float64
}

// Teacher holds the sizes on which the memory of a model without a backward pass depends.
type Teacher struct {
	Parameters                      float64
	Width, HeadWidth, Hidden, Heads int
}

// Need is an estimate of what a run needs at the same time, in bytes. A checkpoint needs
// no additional memory: it is written from the parameters and states themselves, and read
// tensor by tensor.
type Need struct {
	Program    float64 // the program itself
	Parameters float64
	Gradients  float64 // gradients, and the new parameters
	Quantized  float64
	States     float64
	Workspace  float64
	Blocks     float64 // values inside transformer blocks that the backward pass needs
	Scores     float64 // attention scores
	Logits     float64
	Caches     float64 // keys and values of what has been read
	Teacher    float64 // the teacher's parameters
	Samples    float64 // codes and residuals, and their copy in a checkpoint
	Host       float64 // states that a GPU keeps in its machine's memory; not a part of the total
}

// What is counted how often was fitted to the largest resident sizes of trainings on the
// CPU that collected garbage often (GOGC=10); TestEstimate has them.
const (
	wordBytes = 4
	sampled   = 4 * wordBytes // a code and a residual, twice
	itself    = 75e6          // code, plugins' programs, the runtime

	gradients = 2.0 // copies of the parameters
	measured  = 2.0 // of those whose gradients are measured
	quantized = 1.7

	keptWidth, keptHeads, keptHidden, keptScores = 5.6, 7.0, 3.35, 1.07 // of each layer
	keptNormed                                   = 2.35                 // of queries and keys that are normalized
	onceHidden, onceScores                       = 5.0, 1.36            // of the layer that is computed
	logits                                       = 1.1
	distilled                                    = 5.4 // in the place of logits, with a teacher

	forwardWidth, forwardHeads, forwardHidden, forwardScores = 5.0, 3.0, 3.0, 2.4 // of one layer
)

// Estimate computes what a run needs. It never overflows: sizes are floating-point
// numbers here.
func Estimate(m Sizes) Need {
	if m.GPU != nil {
		return onGPU(m)
	}
	tokens, predicted := float64(m.Batch)*float64(m.Context), float64(m.Batch)*float64(m.Context)
	if m.Piece > 0 {
		tokens, predicted = float64(m.Batch)*float64(m.Piece), float64(m.Batch)
	}
	width, heads, hidden := tokens*float64(m.Width), tokens*float64(cmp.Or(m.HeadWidth, m.Width)), tokens*float64(m.Hidden)
	scores := tokens * float64(m.Context) * float64(m.Heads)
	n := Need{
		Program:    itself,
		Parameters: wordBytes * m.Parameters,
		Quantized:  wordBytes * quantized * m.Quantized,
		Logits:     wordBytes * logits * predicted * float64(m.Vocabulary),
	}
	if m.Forward {
		n.Blocks, n.Scores = forwardNeed(tokens, float64(m.Context), Teacher{Width: m.Width, HeadWidth: m.HeadWidth, Hidden: m.Hidden, Heads: m.Heads})
		if m.Piece > 0 {
			n.Caches = wordBytes * 2 * float64(m.Layers) * float64(m.Batch) * float64(m.Context) * float64(m.KeyWidth)
		}
		return n
	}
	layers, inputs := float64(m.Layers), 0.0
	if m.Recompute == architecture.RecomputeBlocks {
		layers, inputs = min(1, layers), layers*width
	}
	n.Gradients = wordBytes * (gradients*m.Parameters + measured*m.Measured)
	n.States = wordBytes * m.States
	n.Workspace = wordBytes * m.Workspace
	n.Samples = sampled * m.Samples
	attentions := layers
	if m.Recompute == architecture.RecomputeAttention {
		attentions = min(1, layers)
	}
	attention := keptHeads * heads
	if m.Normed {
		attention += keptNormed * (heads + tokens*float64(m.KeyWidth))
	}
	n.Blocks = wordBytes * (inputs + layers*(keptWidth*width+keptHidden*hidden) + attentions*attention + onceHidden*hidden)
	n.Scores = wordBytes * scores * (attentions*keptScores + onceScores)
	if m.Teacher.Parameters > 0 {
		n.Teacher = wordBytes * m.Teacher.Parameters
		n.Logits *= distilled / logits
		// Its blocks are gone when those of the model are computed.
		if blocks, scores := forwardNeed(tokens, float64(m.Context), m.Teacher); blocks+scores > n.Blocks+n.Scores {
			n.Blocks, n.Scores = blocks, scores
		}
	}
	return n
}

// forwardNeed is what the blocks of a model need without a backward pass, and their attention: that of one layer.
func forwardNeed(tokens, context float64, m Teacher) (blocks, scores float64) {
	heads := float64(cmp.Or(m.HeadWidth, m.Width))
	blocks = wordBytes * tokens * (forwardWidth*float64(m.Width) + forwardHeads*heads + forwardHidden*float64(m.Hidden))
	return blocks, wordBytes * tokens * context * forwardScores * float64(m.Heads)
}

// Total returns what the run needs at its peak, of a GPU of the GPU's own memory.
func (n Need) Total() float64 {
	return n.Program + n.Parameters + n.Gradients + n.Quantized + n.States + n.Workspace + n.Blocks + n.Scores + n.Logits + n.Caches + n.Teacher + n.Samples
}

// Part is one item of the memory that a run needs.
type Part struct {
	What  string  `json:"what"`
	Bytes float64 `json:"bytes"`
}

// String returns a line of a table.
func (p Part) String() string { return fmt.Sprintf("%-10s %s", Bytes(p.Bytes), p.What) }

// Parts lists what a run needs, the largest first, leaving out items that are zero.
func (n Need) Parts() []Part {
	all := []Part{
		{"the program itself", n.Program},
		{"parameters", n.Parameters},
		{"gradients, and parameters after the step", n.Gradients},
		{"quantized copies of weights", n.Quantized},
		{"states of the optimizer", n.States},
		{"products of the optimizer", n.Workspace},
		{"activations of the blocks", n.Blocks},
		{"attention scores, which grow with the square of the context", n.Scores},
		{"logits of the vocabulary", n.Logits},
		{"keys and values of what has been read", n.Caches},
		{"parameters of the teacher", n.Teacher},
		{"samples of codes", n.Samples},
	}
	return largestFirst(all)
}

func largestFirst(all []Part) (list []Part) {
	for _, p := range all {
		if p.Bytes > 0 {
			list = append(list, p)
		}
	}
	sort.SliceStable(list, func(i, j int) bool { return list[i].Bytes > list[j].Bytes })
	return list
}

// workspaceOf estimates the number of elements that an executor works with in addition to
// the inputs and outputs of a program: the values that are needed at the same time. A
// program with only elementwise operations needs none.
func workspaceOf(p *program.Program) float64 {
	if p == nil || !products(p) {
		return 0
	}
	last := map[program.ID]int{}
	for i, n := range p.Nodes {
		for _, arg := range n.Args {
			last[arg] = i
		}
	}
	var now, most float64
	ends := map[int]float64{}
	for i, n := range p.Nodes {
		size := float64(n.Type.Size())
		now += size
		ends[max(i, last[program.ID(len(p.Inputs)+i)])] += size
		most = max(most, now)
		now -= ends[i]
	}
	return most
}

// refreshWorkspace is [workspaceOf] for a refresh, which is computed in float64 on copies of its inputs. It counts in
// elements of 4 bytes.
func refreshWorkspace(p *program.Program) float64 { return 2 * (inputElements(p) + workspaceOf(p)) }

// inputElements counts the elements that a program reads; 0 for nil.
func inputElements(p *program.Program) float64 {
	n := 0.0
	if p != nil {
		for _, in := range p.Inputs {
			n += float64(in.Type.Size())
		}
	}
	return n
}

// products tells whether a program multiplies or factorizes matrices.
func products(p *program.Program) bool {
	for _, n := range p.Nodes {
		info, _ := n.Op.Info() // a valid program has no other
		if info.Class == program.ClassLinear || info.Class == program.ClassLinalg {
			return true
		}
	}
	return false
}
