// Package config defines the TOML schema of training runs. It reads configuration files and
// command-line overrides, validates them, and writes resolved configurations.
//
// The keys of each table are a list of [schema.Key], defined in the package that implements the
// table's settings or in tables.go. Validation, defaults, [Config.Encode] and [Reference] all use
// these lists, so they cannot disagree.
//
// A problem is reported as an [*plaintoml.Error] with the file, the line, the key, the value found
// and a hint at valid values. All invalid, unknown and missing keys are reported together, as
// [plaintoml.Errors]. Contradictions between keys are only checked if there are no such problems.
//
// Besides the configuration file, only the description of the model in model.init is read. The
// parameters of plugins are checked by the code that starts them, which reports problems with
// [Config.ErrorAt]. Relative paths are relative to the working directory of the process.
package config

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/lora"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/schema"
)

// Config is the configuration of a training run, with defaults filled in and presets expanded. It
// must not be modified: use [Config.Changed]. [Reference] documents the meaning, range and default
// of each key.
type Config struct {
	Seed        int64 // for the model's initialization, and the noise of quantizers and problems
	Model       architecture.Settings
	Init        string // directory of the initial weights; "": random initialization
	NewTokens   int    // number of token ids added to those of the model in Init
	NewRowsFrom *int   // token id whose rows initialize the new rows; nil: the mean of all rows
	Adapters    lora.Settings
	Data        Data
	Train       Train
	Schedule    cage.ScheduleSettings
	Method      cage.Settings
	Quantizer   Quantizer
	Optimizer   Optimizer
	Diagnostics cage.Diagnostics
	Device      Device

	untrained bool // train.steps is 0: the run only holds an imported model

	places plaintoml.Positions // source position of each key
}

// ErrorAt returns an error about a key, with the position of the key, of the override that set it
// or, if it has its default, of its table. [Plugin.Path] returns the key of a plugin's parameter.
// Callers may set Hint in the result to suggest a valid value. As in fmt.Errorf, %w wraps a cause.
func (c *Config) ErrorAt(key, format string, args ...any) *plaintoml.Error {
	return c.places.ErrorAt(key, format, args...)
}

// IsSet reports whether the key is set in the file or an override, rather than by default.
func (c *Config) IsSet(key string) bool { return c.places.Has(key) }

// Changed calls change with a copy of the configuration and returns the copy.
func (c *Config) Changed(change func(*Config) error) (*Config, error) {
	out := *c
	q, o := &out.Quantizer, &out.Optimizer
	for _, role := range append([]string{RoleWeights, RoleActivations}, ownRoles...) {
		*q.role(role) = (*q.role(role)).copy()
	}
	q.Overrides = slices.Clone(q.Overrides)
	for i := range q.Overrides {
		q.Overrides[i].Plugin = q.Overrides[i].Plugin.copy()
	}
	q.Unused = q.Unused.copy()
	o.Plugin, o.Rest, o.Groups = *o.Plugin.copy(), o.Rest.copy(), slices.Clone(o.Groups)
	for i := range o.Groups {
		o.Groups[i].Plugin = o.Groups[i].Plugin.copy()
	}
	return &out, change(&out)
}

// ResolvedMethod returns the settings of [method] with λ computed from the strength, if that is
// set, for a run of Train.Steps steps.
func (c *Config) ResolvedMethod() cage.Settings {
	m := c.Method
	m.CAGE = m.CAGE.Resolve(c.Schedule.Schedule(c.Train.Steps))
	return m
}

// Untrained reports whether train.steps is 0, because the run only contains an imported model.
func (c *Config) Untrained() bool { return c.untrained }

// WithoutTraining returns the configuration of a run in directory out that only contains this
// model, without training. It keeps the quantizers of the forward pass and any validation set.
func (c *Config) WithoutTraining(out string) *Config {
	held, _ := c.Changed(func(c *Config) error {
		c.untrained, c.Train.Steps, c.Train.Out = true, 0, out
		c.Data.Train, c.Data.Mixture, c.Data.TrainSHA256 = nil, nil, ""
		c.Train.Distillation, c.Quantizer = Distillation{}, *c.Quantizer.Forward()
		c.Adapters = lora.Settings{}
		c.Train.Average, c.Train.AverageDecay, c.Train.AverageFrom = averageOff, defaultAverageDecay, 0
		m := &c.Method
		m.Name, m.CAGE.Form = cage.NameOff, cage.Off
		if m.CAGE.Strength != nil {
			m.CAGE.Strength, m.CAGE.Lambda = nil, cage.Default.Lambda
		}
		return nil
	})
	return held
}

// Plugins lists the plugins of all tables, the quantizers first.
func (c *Config) Plugins() []*Plugin {
	return append(c.Quantizer.Plugins(), c.Optimizer.Plugins()...)
}

// Values of data.kind.
const (
	KindText = "text" // token files
	KindChat = "chat" // conversations
)

// Data configures the training and validation data.
type Data struct {
	Kind             string   // KindText or KindChat
	Train            []string // files, read in order; empty if Mixture is set
	Mixture          []Source
	Validation       string
	Tokenizer        string // path of a tokenizer.json; "": as recorded in the token file
	Mismatch         string // if the model has another tokenizer: mismatchRefuse or MismatchAllow
	Documents        string // text only: documentsJoined or documentsSeparate
	Packing          string // conversations only: defaultPacking or "none"
	Epochs           int    // conversations only
	Seed             int64  // of the sampler's permutation
	TrainSHA256      string // expected hash of the token ids in Train, hexadecimal; "": any
	ValidationSHA256 string // the same for Validation
}

// Source is one source of a mixture: a token file, or several of them.
type Source struct {
	Path   string
	Weight float64 // share of the tokens, relative to the other weights
}

// Values of data.documents and data.tokenizer_mismatch, and the default of data.packing.
const (
	mismatchRefuse    = "refuse"
	MismatchAllow     = "allow"
	documentsJoined   = "joined"
	documentsSeparate = "separate" // attention and predictions stay within documents
	defaultPacking    = "first_fit"
)

// Separate reports whether attention and predictions stay within each document of a sequence, as
// they always do for conversations.
func (d *Data) Separate() bool { return d.Kind == KindChat || d.Documents == documentsSeparate }

// SetKind sets Kind. If that changes it, settings specific to a kind are reset to their defaults.
func (d *Data) SetKind(kind string) {
	if d.Kind != kind {
		d.Kind, d.Documents, d.Packing, d.Epochs = kind, documentsJoined, defaultPacking, 1
		d.Mismatch = cmp.Or(d.Mismatch, mismatchRefuse)
	}
}

// Files lists the training files, or those of the mixture, in order. Each may be a glob pattern.
func (d *Data) Files() []string {
	if len(d.Mixture) == 0 {
		return d.Train
	}
	return lists.Map(d.Mixture, func(s Source) string { return s.Path })
}

// FileKey returns the full key that configures element i of [Data.Files].
func (d *Data) FileKey(i int) string {
	if len(d.Mixture) == 0 {
		return "data.train"
	}
	return plaintoml.Indexed("data.mixture", i) + ".path"
}

// MeanOfMicroBatches is the value of train.loss_mean that gives all micro-batches the same weight,
// regardless of their numbers of targets.
const MeanOfMicroBatches = "micro_batch"

// RecomputeAuto is the value of train.recompute that selects the setting with the least
// recomputation for which the step is estimated to fit in memory.
const RecomputeAuto architecture.Recompute = "auto"

// Train holds the settings of the training loop: its length, batches, evaluation and checkpoints.
type Train struct {
	Steps             int                    // optimizer steps; 0: no training
	Batch             int                    // sequences per micro-batch; 1 for problems
	Accumulate        int                    // micro-batches per step
	LossMean          string                 // "token" or [MeanOfMicroBatches]
	Recompute         architecture.Recompute // or [RecomputeAuto]
	MemoryCheck       string                 // "on" or "off"
	Clip              float64
	WeightDecay       float64
	Decay             string // "first" or [DecayLast]
	Rotations         string // "half" or "full"; "" for problems
	Requantize        string // "on" or "off"; "" for problems
	EvalEvery         int    // steps; 0: only at the end
	EvalBatches       int    // 0: the whole validation set
	FinalEvalBatches  int    // 0: the whole validation set
	LogEvery          int
	TrajectoryEvery   int     // for problems: steps between records of x; 0: none
	CheckpointEvery   int     // steps; 0: only by time, at the end and on signals
	CheckpointMinutes float64 // minutes since the last checkpoint; 0: only by step
	Keep              int     // number of checkpoints kept
	Out               string
	Average           string  // averageOff, averageEMA or averageUniform
	AverageDecay      float64 // of averageEMA
	AverageFrom       float64 // first step of the average; below 1: a fraction of the steps
	Distillation      Distillation
	NaNPolicy         string // "skip" or "stop"
	MaxSkipped        int
	TensorBoard       bool     // whether to write TensorBoard event files
	Samples           []string // prompts to complete at each evaluation; nil: none
	SampleTokens      int
	SampleTemperature float64 // 0: greedy decoding
}

// The values of train.average, and the default of train.average_decay.
const (
	averageOff     = "off"
	averageEMA     = "ema"
	averageUniform = "uniform"

	defaultAverageDecay = 0.999
)

// Averaging returns the settings of the weight average with which the model is evaluated and
// exported, or nil if the weights are not averaged.
func (t *Train) Averaging() *cage.Average {
	if t.Average == averageOff || t.Average == "" {
		return nil
	}
	first := cage.StepsOf(t.AverageFrom, t.Steps)
	if t.AverageFrom < 1 {
		first++ // the first step after that fraction
	}
	return &cage.Average{Uniform: t.Average == averageUniform, Decay: t.AverageDecay, From: first}
}

// averageProblems reports an invalid value of train.average_from. t.Steps is 0 if it is not known
// yet.
func (t *Train) averageProblems() (out schema.Problems) {
	from := schema.Decimal(t.AverageFrom)
	p := schema.Problem{Key: "train.average_from", Found: "the float " + from,
		Hint: "want a fraction of the steps below 1, or the number of the first step of the average"}
	out.Unless(t.AverageFrom < 1 || t.AverageFrom == math.Trunc(t.AverageFrom), p)
	p.Found = fmt.Sprintf("step %s in a run of %d steps", from, t.Steps)
	out.Unless(t.Steps == 0 || t.Averaging() == nil || t.AverageFrom <= float64(t.Steps), p)
	return out
}

// IdleAverage lists the averaging keys that differ from their defaults but have no effect because
// of train.average.
func (t *Train) IdleAverage() (keys []string) {
	if t.Average != averageEMA && t.AverageDecay != defaultAverageDecay {
		keys = append(keys, "train.average_decay")
	}
	if t.Average == averageOff && t.AverageFrom != 0 {
		keys = append(keys, "train.average_from")
	}
	return keys
}

// TeacherInitial is the value of train.distillation.teacher that makes the initial model the
// teacher.
const TeacherInitial = "initial"

// Distillation configures the teacher and the divergence from its predictions.
type Distillation struct {
	// Teacher is TeacherInitial, the directory of a run or of a Hugging Face checkpoint, or "".
	Teacher string

	// Parameters of the divergence; see network.Distillation.
	Beta, Temperature, Weight float64
	Squared                   bool
}

// TeacherDir returns the directory of the teacher's weights, or "" if there is no teacher.
func (c *Config) TeacherDir() string {
	if c.Train.Distillation.Teacher == TeacherInitial {
		return c.Init
	}
	return c.Train.Distillation.Teacher
}

// DecayLast is the value of train.decay that applies weight decay after the optimizer's update.
const DecayLast = "last"

// Device configures the device and its arithmetic.
type Device struct {
	Kind      string // engine.CPU or engine.CUDA
	Count     int    // number of replicas; 0 for a model without batches to share, equivalent to 1
	Shard     device.Shard
	Precision device.Precision
	TF32      string // "off" or "on"
	Attention device.Attention
	Kernels   device.Kernels
	Products  device.Products
	// Allocator, Preallocate ("off" or "on") and MemoryFraction (0: default) apply to GPU memory.
	Allocator      device.Allocator
	Preallocate    string
	MemoryFraction float64
	Cache          string // a directory; empty: none
	// TimeoutMinutes limits the duration of an execution or a copy on a GPU; 0 means no limit.
	TimeoutMinutes float64
	Threads        int // 0: all cores
	// PeakTFLOPS is the peak performance of the device in TFLOP/s; 0 means unknown.
	PeakTFLOPS float64
}

// Hashes returns the expected hashes of the token ids, keyed by the files' paths. All training
// files together have a single hash, keyed by their joined paths. Unknown hashes are left out.
func (d *Data) Hashes() map[string]string {
	hashes := map[string]string{
		strings.Join(d.Files(), ", "): d.TrainSHA256, d.Validation: d.ValidationSHA256}
	maps.DeleteFunc(hashes, func(_, hash string) bool { return hash == "" })
	return hashes
}

// ChangedData compares recorded and current [Data.Hashes]. It returns a description of a change of
// a file that both contain, or "" if there is none.
func ChangedData(recorded, now map[string]string) string {
	for _, path := range slices.Sorted(maps.Keys(recorded)) {
		if hash, ok := now[path]; ok && hash != recorded[path] {
			return fmt.Sprintf("the tokens in %s have changed: their SHA-256 is %.12s…, was %.12s…",
				path, hash, recorded[path])
		}
	}
	return ""
}

// Finding is what package host/train/build finds when it checks a configuration with the current
// plugins and data.
type Finding struct {
	// Err is the reason why the configuration cannot be trained, or nil if it can be.
	Err error
	// Stale describes how the run in train.out differs from what a new run of this configuration
	// would be; it is empty if there is no difference or no run.
	Stale string
	// Programs holds the hashes of the plugins' programs by name, Data the hashes of the token
	// files by path.
	Programs, Data map[string]string
}
