package config

import "math"

// Config is a resolved training run: every default filled in, presets
// expanded. The meaning, range and default of each field is in [Reference].
type Config struct {
	Seed      int64 // model initialisation
	Model     Model
	Data      Data
	Train     Train
	Schedule  Schedule
	Method    Method
	Quantizer Quantizer
	Optimizer Optimizer
	Device    Device

	origin origin // where each key stood, for ErrorAt
}

// Model is the architecture. Sizes are counts; Width is the residual stream's.
type Model struct {
	Kind    string // "llama"
	Preset  string // name in Presets, or "" for free sizes
	Layers  int
	Width   int
	Heads   int
	Hidden  int // feed-forward width; Load replaces 0 by SwiGLUHidden(Width)
	Vocab   int // 0: as many as the data's tokenizer has
	Context int // tokens per sequence

	RopeTheta float64
	NormEps   float64
	InitStd   float64
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

// Train is the loop: its length, batches, evaluation, checkpoints.
type Train struct {
	Steps            int // optimizer steps
	Batch            int // sequences per micro-batch
	Accumulate       int // micro-batches per step
	Clip             float64
	WeightDecay      float64
	EvalEvery        int // steps; 0: only at the end
	EvalBatches      int // 0: the whole validation set
	FinalEvalBatches int // 0: the whole validation set
	LogEvery         int
	CheckpointEvery  int // steps; 0: only at the end and on signals
	Keep             int // checkpoints kept
	Out              string
	NaNPolicy        string // "skip" or "stop"
	MaxSkipped       int
}

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
	Precision string // "float32" or "bfloat16"
	Threads   int    // 0: all cores
}
