package build

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"

	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/lora"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// Sizes are the quantities that determine how much memory a run on the CPU needs. For a problem
// without data, the sizes of a transformer are zero.
type Sizes struct {
	Layers, Width, Hidden, Heads, Vocabulary int
	// HeadWidth is the number of query features per token over all heads; 0 means Width. KeyWidth
	// is the number of key features, which is also that of value features.
	HeadWidth, KeyWidth int
	Normed              bool // queries and keys are normalized (QK norm)
	// Context is the number of tokens in a sequence, Batch the number of sequences in a batch.
	Context, Batch int
	Recompute      architecture.Recompute
	// Forward is set for an evaluation, which has no gradients and no optimizer.
	Forward bool
	// Piece is the number of tokens per sequence that an evaluation with a KV cache processes at
	// once; 0 means whole sequences without a cache.
	Piece int

	// Numbers of elements: of all trained tensors, of the tensors with a quantized copy, and of the
	// optimizers' states.
	Parameters, Quantized, States float64
	// Frozen is the number of elements of Parameters that are not trained, Adapted that of those which
	// have adapters, and FrozenBytes the size of Frozen.
	Frozen, Adapted, FrozenBytes float64
	// Teacher holds the sizes of the teacher in distillation; zero if there is none.
	Teacher Teacher
	// Measured is the number of gradient elements that a stationarity measure also computes
	// without quantization.
	Measured float64
	// Samples is the number of stored samples of codes, summed over all coordinates.
	Samples float64
	// Workspace is the number of elements in the optimizers' workspaces.
	Workspace float64
}

// Teacher holds the sizes that determine how much memory a model needs for forward passes only.
type Teacher struct {
	Parameters                      float64
	Width, HeadWidth, Hidden, Heads int
}

// Part is one item of the memory that a run needs.
type Part struct {
	What  string  `json:"what"`
	Bytes float64 `json:"bytes"`
}

// String returns p as a row of a table.
func (p Part) String() string { return fmt.Sprintf("%-10s %s", Bytes(p.Bytes), p.What) }

// Factors of [Estimate], fitted to the peak resident set sizes listed in TestEstimate, which were
// measured in training on the CPU with frequent garbage collection (GOGC=10).
const (
	wordBytes = 4
	sampled   = 4 * wordBytes // two copies of a code and a residual
	itself    = 75e6          // code, plugins' programs, the Go runtime

	gradients = 2.0 // copies of the parameters
	measured  = 2.0 // copies of the measured gradients
	quantized = 1.7

	// Kept in every layer; keptNormed applies if queries and keys are normalized.
	keptWidth, keptHeads, keptHidden, keptScores = 5.6, 7.0, 3.35, 1.07
	keptNormed                                   = 2.35
	// Needed only in the layer that is being computed.
	onceHidden, onceScores = 5.0, 1.36

	logits    = 1.1
	distilled = 5.4 // replaces logits if there is a teacher

	forwardWidth, forwardHeads, forwardHidden, forwardScores = 5.0, 3.0, 3.0, 2.4 // in one layer
)

// Estimate returns the items of a run's peak memory. Checkpoints need no additional memory: they
// are written directly from the parameters and states, and read tensor by tensor.
func Estimate(m Sizes) []Part {
	tokens, predicted := float64(m.Batch)*float64(m.Context), float64(m.Batch)*float64(m.Context)
	if m.Piece > 0 {
		tokens, predicted = float64(m.Batch)*float64(m.Piece), float64(m.Batch)
	}
	width, hidden := tokens*float64(m.Width), tokens*float64(m.Hidden)
	heads := tokens * float64(cmp.Or(m.HeadWidth, m.Width))
	logit := logits * predicted * float64(m.Vocabulary)
	var blocks, scores, caches, updates, states, workspace float64 // in elements
	var samples float64
	if m.Forward {
		blocks, scores = forwardNeed(tokens, float64(m.Context),
			Teacher{Width: m.Width, HeadWidth: m.HeadWidth, Hidden: m.Hidden, Heads: m.Heads})
		if m.Piece > 0 {
			caches = 2 * float64(m.Layers) * float64(m.Batch) * float64(m.Context) * float64(m.KeyWidth)
		}
	} else {
		layers, inputs := float64(m.Layers), 0.0
		if m.Recompute == architecture.RecomputeBlocks {
			layers, inputs = min(1, layers), layers*width
		}
		attentions := layers
		if m.Recompute == architecture.RecomputeAttention {
			attentions = min(1, layers)
		}
		attention := keptHeads * heads
		if m.Normed {
			attention += keptNormed * (heads + tokens*float64(m.KeyWidth))
		}
		// The gradient of a weight with an adapter is as large as the merged weight.
		updates = gradients*(m.Parameters-m.Frozen) + m.Adapted + measured*m.Measured
		states, workspace, samples = m.States, m.Workspace, m.Samples
		blocks = inputs + layers*(keptWidth*width+keptHidden*hidden) +
			attentions*attention + onceHidden*hidden
		scores = tokens * float64(m.Context) * float64(m.Heads) * (attentions*keptScores + onceScores)
		if m.Teacher.Parameters > 0 {
			logit *= distilled / logits
			// The teacher's blocks are freed before those of the model are computed.
			if b, s := forwardNeed(tokens, float64(m.Context), m.Teacher); b+s > blocks+scores {
				blocks, scores = b, s
			}
		}
	}
	return []Part{
		{"the program itself", itself},
		{"parameters", wordBytes*(m.Parameters-m.Frozen) + m.FrozenBytes},
		{"gradients, and parameters after the step", wordBytes * updates},
		{"quantized copies of weights", wordBytes * quantized * m.Quantized},
		{"states of the optimizer", wordBytes * states},
		{"products of the optimizer", wordBytes * workspace},
		{"activations of the blocks", wordBytes * blocks},
		{"attention scores, which grow with the square of the context", wordBytes * scores},
		{"logits of the vocabulary", wordBytes * logit},
		{"KV cache", wordBytes * caches},
		{"parameters of the teacher", wordBytes * m.Teacher.Parameters},
		{"samples of codes", sampled * samples}, // also copied for a checkpoint
	}
}

func forwardNeed(tokens, context float64, m Teacher) (blocks, scores float64) {
	heads := float64(cmp.Or(m.HeadWidth, m.Width))
	layer := forwardWidth*float64(m.Width) + forwardHeads*heads + forwardHidden*float64(m.Hidden)
	blocks = tokens * layer
	return blocks, tokens * context * forwardScores * float64(m.Heads)
}

func sizesOf(cfg *config.Config, m model.Model, programs *Programs) (Sizes, error) {
	out := Sizes{Batch: cfg.Train.Batch, Context: cfg.Model.Context,
		Forward: programs.Forward, Piece: programs.Piece}
	if cfg.Model.Language() {
		s := cfg.Model
		out.Layers, out.Width, out.Hidden = s.Layers, s.Width, s.Hidden
		out.Heads, out.Vocabulary = s.Heads, s.Vocab
		out.HeadWidth, out.KeyWidth = s.Heads*s.HeadSize, s.KVHeads*s.HeadSize
		out.Normed, out.Recompute = s.QueryKeyNorm(), cfg.Train.Recompute
	}
	for _, p := range m.Params() {
		if q, ok := programs.Weights[p.Name]; ok {
			out.Quantized += elements(p.Dims)
			// A search needs the state, and copies of its inputs and outputs in host and plugin.
			if q.SearchEvery > 0 && !programs.Forward {
				out.States += 2 * elements(p.Dims)
				for _, s := range q.Trained {
					out.States += 2 * elements(s.Shape)
				}
				for _, s := range q.State {
					out.States += 5 * elements(s.Shape)
				}
			}
		}
	}
	for _, a := range cfg.Adapters.Of(cfg.Model) {
		if !programs.Forward {
			out.Adapted += float64(a.In * a.B().Dims[0])
		}
	}
	short, err := packed(cfg, programs)
	if err != nil {
		return out, err
	}
	for _, t := range programs.Tensors {
		out.Parameters += elements(t.Shape)
		if t.Frozen {
			out.Frozen += elements(t.Shape)
			switch p := short[t.Name]; {
			case p != nil:
				out.FrozenBytes += float64(p.Bytes())
			case cfg.Adapters.Base == lora.BFloat16:
				out.FrozenBytes += wordBytes / 2 * elements(t.Shape)
			default:
				out.FrozenBytes += wordBytes * elements(t.Shape)
			}
		}
		for _, s := range t.Optimizer.State {
			out.States += elements(s.Shape) * float64(s.Storage.Bytes()) / float64(sdk.StoreFloat32.Bytes())
		}
		// Host and plugin each hold x, the gradient, the direction and two copies of the states.
		if t.Optimizer.Opaque {
			out.States += 6 * elements(t.Shape)
			for _, s := range t.Optimizer.State { // one copy is the state itself
				out.States += 3 * elements(s.Shape)
			}
		}
		if t.Optimizer.Evaluate != nil { // during an evaluation, or while a checkpoint is written
			out.States += elements(t.Shape)
		}
		if t.average(cfg) != nil && !programs.Forward {
			out.States += 2 * elements(t.Shape) // with a copy for an evaluation or a checkpoint
		}
		if t.Optimizer.ProbeDue.First > 0 { // the second gradient
			out.States += elements(t.Shape)
		}
		if t.Optimizer.Probe != nil { // the point at which it is computed
			out.States += elements(t.Shape)
		}
		if t.RefreshDelay > 0 { // the inputs of a refresh are copied while it runs
			out.States += inputElements(t.Optimizer.Refresh)
		}
		if _, quantized := programs.Weights[t.Name]; quantized && !programs.Forward {
			for _, s := range cfg.Method.Method().State(t.Shape) {
				out.States += elements(s.Shape)
			}
		}
	}
	if d := cfg.Diagnostics; d.Every > 0 && !programs.Forward {
		rows := min(d.Window, cfg.Train.Steps/d.Every)
		out.Samples = min(float64(d.Coordinates), out.Quantized) * float64(rows)
	}
	out.Workspace = workspaces(programs, cfg.Device.Threads)
	if programs.Forward {
		return out, nil
	}
	d, err := distillation(cfg)
	if d != nil {
		n := d.Teacher.Network()
		out.Teacher = Teacher{Parameters: float64(architecture.CountParams(d.Teacher.Params(), nil)),
			Width: n.Width, HeadWidth: n.Heads * n.HeadSize, Hidden: n.Hidden, Heads: n.Heads}
	}
	if cfg.Method.ParetoEvery > 0 {
		out.Measured = out.Parameters
	}
	return out, err
}

// workspaces returns the number of elements in the optimizers' workspaces: each thread that updates
// tensors keeps one workspace per table and shape, and computes one refresh at a time.
func workspaces(programs *Programs, threads int) float64 {
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	updates, seen, refreshes := 0.0, map[string]bool{}, []float64{}
	for _, t := range programs.Tensors {
		if key := fmt.Sprint(t.Table, t.Shape); !seen[key] {
			seen[key] = true
			o := t.Optimizer // workspace of the programs of its updates
			most := 0.0
			for _, p := range []*program.Program{
				o.Init, o.Observe, o.Update, o.Collect, o.Probe, o.Evaluate, t.Constrain,
			} {
				most = max(most, workspaceOf(p))
			}
			updates += most
		}
		first, later := t.Optimizer.FirstRefresh, t.Optimizer.Refresh
		refreshes = append(refreshes, max(refreshWorkspace(first), refreshWorkspace(later)))
	}
	slices.Sort(refreshes)
	all := float64(threads) * updates
	for _, r := range refreshes[max(0, len(refreshes)-threads):] { // the largest
		all += r
	}
	return all
}

func elements(dims []int) float64 {
	n := 1.0
	for _, d := range dims {
		n *= float64(d)
	}
	return n
}

// workspaceOf estimates how many elements an executor needs besides a program's inputs: the maximum
// size of live values. It is 0 for elementwise programs.
func workspaceOf(p *program.Program) float64 {
	if p == nil || !slices.ContainsFunc(p.Nodes, func(n program.Node) bool {
		info, _ := n.Op.Info() // every operation of a valid program is known
		return info.Class == program.ClassLinear || info.Class == program.ClassLinalg
	}) {
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

// refreshWorkspace estimates the workspace of a refresh in elements of 4 bytes. A refresh is
// computed in float64, on copies of its inputs.
func refreshWorkspace(p *program.Program) float64 { return 2 * (inputElements(p) + workspaceOf(p)) }

func inputElements(p *program.Program) float64 {
	n := 0.0
	if p != nil {
		for _, in := range p.Inputs {
			n += float64(in.Type.Size())
		}
	}
	return n
}
