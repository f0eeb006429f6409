package config

import "math"

// Config is a resolved training run: every default filled in, presets
// expanded. The meaning, range and default of each field is in [Reference].
type Config struct {
	Seed        int64 // model initialisation, and the noise of problems
	Model       Model
	Data        Data
	Train       Train
	Schedule    Schedule
	Method      Method
	Quantizer   Quantizer
	Optimizer   Optimizer
	Diagnostics Diagnostics
	Device      Device

	origin origin // where each key stood, for ErrorAt
}

// Model is what is trained. The fields of other kinds than its own are zero, but for
// Context, which is 1 then.
type Model struct {
	Kind string // KindLlama, KindOLMo2, KindQuadratic or KindToy

	// Language models. Sizes are counts; Width is the residual stream's.
	Preset  string // name in Presets, or "" for free sizes
	Layers  int
	Width   int
	Heads   int
	Hidden  int // feed-forward width; Load replaces 0 by SwiGLUHidden(Width)
	Vocab   int // 0: as many as the data's tokenizer has
	Context int // tokens per sequence

	KVHeads int // heads of keys and values; Load replaces 0 by Heads

	RopeTheta         float64
	RopePairs         string  // "interleaved" or "half"
	RopeFactor        float64 // of Llama 3's longer wavelengths; 1: none, and without effect is what follows
	RopeLow, RopeHigh float64
	RopeOriginal      int // tokens

	NormEps float64
	InitStd float64
	Head    string // "own" or "tied"

	// Problems: nil lists are drawn.
	Dimension, Rows int
	Condition       float64   // κ(A), when there is no Spectrum
	Spectrum        []float64 // eigenvalues of A
	Optimum         []float64 // x*, row by row
	ProblemSeed     int64     // of eigenvectors and optimum
	Start           []float64 // x at the start, row by row
	StartStd        float64
	Noise           float64 // standard deviation of the gradient's noise
}

// Data names the token files. Paths are relative to the working directory.
type Data struct {
	Train            string
	Validation       string
	Tokenizer        string // path of a tokenizer.json; "": as recorded in the token file
	Seed             int64  // of the sampler's permutation
	TrainSHA256      string // expected hash of the token ids in Train, lower-case hexadecimal; "": any
	ValidationSHA256 string // the same for Validation
}

// RecomputeBlocks is the value of train.recompute with which the backward pass computes
// each block of a language model again.
const RecomputeBlocks = "blocks"

// Train is the loop: its length, batches, evaluation, checkpoints.
type Train struct {
	Steps             int    // optimizer steps
	Batch             int    // sequences per micro-batch; 1 for problems
	Accumulate        int    // micro-batches per step
	Recompute         string // "none" or RecomputeBlocks
	MemoryCheck       string // "on" or "off"
	Clip              float64
	WeightDecay       float64
	Decay             string // "first" or [DecayLast]
	Rotations         string // "half" or "full"; "" for problems
	EvalEvery         int    // steps; 0: only at the end
	EvalBatches       int    // 0: the whole validation set
	FinalEvalBatches  int    // 0: the whole validation set
	LogEvery          int
	TrajectoryEvery   int     // problems: steps between records of x; 0: none
	CheckpointEvery   int     // steps; 0: by the clock, at the end and on signals
	CheckpointMinutes float64 // since the last checkpoint; 0: not by the clock
	Keep              int     // checkpoints kept
	Out               string
	NaNPolicy         string // "skip" or "stop"
	MaxSkipped        int
}

// DecayLast is the value of train.decay with which weights decay after the optimizer's
// update.
const DecayLast = "last"

// Schedule is the learning rate over the run.
type Schedule struct {
	Kind   string
	Rate   float64 // peak learning rate
	Warmup float64 // fraction of the steps below 1, else steps; see WarmupSteps
	Floor  float64 // final rate as a fraction of Rate
	Decay  float64 // "wsd": fraction of the steps in the decay phase
}

// WarmupSteps is the warm-up in whole steps of a run of the given length: a
// fraction below 1 is rounded down.
func (s Schedule) WarmupSteps(steps int) int {
	if s.Warmup >= 1 {
		return int(s.Warmup)
	}
	return portion(s.Warmup, steps)
}

// DecaySteps is the length of the decay phase of "wsd" in whole steps,
// rounded down.
func (s Schedule) DecaySteps(steps int) int { return portion(s.Decay, steps) }

// portion rounds fraction*steps down, forgiving the last bit of a decimal
// fraction that binary cannot hold (0.29 of 100 is 29).
func portion(fraction float64, steps int) int {
	return int(math.Floor(fraction*float64(steps) + 1e-9))
}

// Device is where the run computes.
type Device struct {
	Kind      string // "cpu" or "cuda"
	Count     int    // replicas; 0, as 1, where a model has no batches to share
	Precision string // "float32" or "bfloat16"
	TF32      string // "off" or "on"
	Attention string // "auto", "fused" or "plain"
	Threads   int    // 0: all cores
}
