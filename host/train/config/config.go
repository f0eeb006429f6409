// Package config defines the TOML schema of a training run, and validates it strictly.
//
// It reads configuration files and command-line overrides, and writes resolved configurations. The
// keys of a table are a list of [schema.Key], defined in the package that implements the table or,
// if there is none, in tables.go. Validation, defaults, [Config.Encode] and [Reference] all derive
// from these lists, so they cannot disagree.
//
// A problem is reported as an [*plaintoml.Error] with the file, line and key, the value found and a
// hint at a valid one. All invalid, unknown and missing keys of a file are reported at once, as
// [plaintoml.Errors]; if there are none, all contradictions between keys.
//
// Apart from the configuration file, only the sizes of the model in model.init are read. A plugin's
// parameters are checked by the code that starts it, with the errors of [Config.ErrorAt]. Relative
// paths are relative to the working directory of the process, not to the configuration file.
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
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/schema"
)

// Config is a resolved training run, with defaults filled in and presets expanded. It is not
// modified after it has been read: see [Config.Changed]. [Reference] documents the meaning, range
// and default of each field.
type Config struct {
	Seed        int64 // for the model's initialization, and the noise of quantizers and problems
	Model       architecture.Settings
	Init        string // directory of the initial weights; "": random initialization
	NewTokens   int    // number of token ids added to those of the model in Init
	NewRowsFrom *int   // token id whose rows initialize the new rows; nil: the mean of all rows
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

// ErrorAt returns an error about a key, positioned at the key or at the override that set it or, if
// it has its default, at its table. Use [Plugin.Path] for the key of a plugin's parameter. Set Hint
// on the result to suggest a valid value. As with fmt.Errorf, %w wraps the cause.
func (c *Config) ErrorAt(key, format string, args ...any) *plaintoml.Error {
	return c.places.ErrorAt(key, format, args...)
}

// IsSet reports whether the key is set in the file or an override, rather than by default.
func (c *Config) IsSet(key string) bool { return c.places.Has(key) }

// Changed returns a copy of the configuration, modified by change.
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

// ResolvedMethod returns the settings of [method] with the λ that gives the correction its strength
// in a run of Train.Steps.
func (c *Config) ResolvedMethod() cage.Settings {
	m := c.Method
	m.CAGE = m.CAGE.Resolve(c.Schedule.Schedule(c.Train.Steps))
	return m
}

// Untrained reports whether train.steps is 0: the run only holds an imported model.
func (c *Config) Untrained() bool { return c.untrained }

// WithoutTraining returns the configuration of a run in directory out that only contains this
// model: it has no steps or method, the forward quantizers, and the validation set, if any.
func (c *Config) WithoutTraining(out string) *Config {
	held, _ := c.Changed(func(c *Config) error {
		c.untrained, c.Train.Steps, c.Train.Out = true, 0, out
		c.Data.Train, c.Data.Mixture, c.Data.TrainSHA256 = nil, nil, ""
		c.Train.Distillation, c.Quantizer = Distillation{}, *c.Quantizer.Forward()
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

// Kinds of data.
const (
	KindText = "text" // token files
	KindChat = "chat" // conversations
)

// Data configures the texts or conversations. Paths are relative to the working directory.
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

// Source is a token file, or several of them, in a mixture.
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

// SetKind sets the kind of data. If it changes, the settings specific to a kind get their defaults.
func (d *Data) SetKind(kind string) {
	if d.Kind != kind {
		d.Kind, d.Documents, d.Packing, d.Epochs = kind, documentsJoined, defaultPacking, 1
		d.Mismatch = cmp.Or(d.Mismatch, mismatchRefuse)
	}
}

// Files lists the training files in their order, including those of a mixture. Each may be a glob
// pattern.
func (d *Data) Files() []string {
	if len(d.Mixture) == 0 {
		return d.Train
	}
	var files []string
	for _, s := range d.Mixture {
		files = append(files, s.Path)
	}
	return files
}

// FileKey returns the key that names file i of [Data.Files].
func (d *Data) FileKey(i int) string {
	if len(d.Mixture) == 0 {
		return "data.train"
	}
	return plaintoml.Indexed("data.mixture", i) + ".path"
}

// MeanOfMicroBatches is the value of train.loss_mean with which every micro-batch has the same
// weight, regardless of its number of targets.
const MeanOfMicroBatches = "micro_batch"

// RecomputeAuto is the value of train.recompute that selects the least recomputation with which the
// step fits in memory, as far as that can be estimated.
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

// Averaging returns the settings of the average of weights with which the model is evaluated and
// exported; nil: no average.
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

// averageProblems reports an invalid value of train.average_from. The number of steps is 0 while it
// is unknown.
func (t *Train) averageProblems() (out schema.Problems) {
	from := schema.Decimal(t.AverageFrom)
	p := schema.Problem{Key: "train.average_from", Found: "the float " + from,
		Hint: "want a fraction of the steps below 1, or the number of the first step of the average"}
	out.Unless(t.AverageFrom < 1 || t.AverageFrom == math.Trunc(t.AverageFrom), p)
	p.Found = fmt.Sprintf("step %s in a run of %d steps", from, t.Steps)
	out.Unless(t.Steps == 0 || t.Averaging() == nil || t.AverageFrom <= float64(t.Steps), p)
	return out
}

// IdleAverage lists the keys of the average that have no effect with this train.average, although
// they are set.
func (t *Train) IdleAverage() (keys []string) {
	if t.Average != averageEMA && t.AverageDecay != defaultAverageDecay {
		keys = append(keys, "train.average_decay")
	}
	if t.Average == averageOff && t.AverageFrom != 0 {
		keys = append(keys, "train.average_from")
	}
	return keys
}

// TeacherInitial is the value of train.distillation.teacher that selects the initial model as the
// teacher.
const TeacherInitial = "initial"

// Distillation configures the teacher, and the divergence from it that is minimized.
type Distillation struct {
	// Teacher is TeacherInitial, or the directory of a run or of a Hugging Face checkpoint; "": none.
	Teacher string

	// Parameters of the divergence, as package host/model defines it.
	Beta, Temperature, Weight float64
	Squared                   bool
}

// TeacherDir returns the directory of the teacher's weights; "" if there is no teacher.
func (c *Config) TeacherDir() string {
	if c.Train.Distillation.Teacher == TeacherInitial {
		return c.Init
	}
	return c.Train.Distillation.Teacher
}

// DecayLast is the value of train.decay with which weight decay is applied after the optimizer's
// update.
const DecayLast = "last"

// Device configures the device and how it computes.
type Device struct {
	Kind      string // engine.CPU or engine.CUDA
	Count     int    // number of replicas; 0 for a model without batches to share, equivalent to 1
	Shard     device.Shard
	Offload   string // no effect; a former experiment
	Precision device.Precision
	TF32      string // "off" or "on"
	Attention device.Attention
	Kernels   device.Kernels
	Products  device.Products
	// Allocator, Preallocate ("off" or "on") and MemoryFraction (0: default) configure GPU memory.
	Allocator      device.Allocator
	Preallocate    string
	MemoryFraction float64
	Cache          string // a directory; empty: none
	// TimeoutMinutes bounds the time that one execution may take on a GPU; 0: no limit.
	TimeoutMinutes float64
	Threads        int // 0: all cores
	// PeakTFLOPS is the peak performance of the device, in 10¹² floating-point operations
	// per second; 0: not known.
	PeakTFLOPS float64
}

// Hashes returns the expected hashes of the token ids, by the paths of their files; the
// files of the training set have one hash together. Unknown hashes are left out.
func (d *Data) Hashes() map[string]string {
	hashes := map[string]string{
		strings.Join(d.Files(), ", "): d.TrainSHA256, d.Validation: d.ValidationSHA256}
	maps.DeleteFunc(hashes, func(_, hash string) bool { return hash == "" })
	return hashes
}

// ChangedData describes a token file whose content has changed, according to
// [Data.Hashes] as recorded and as they are now. It is empty if no file in both has
// changed.
func ChangedData(recorded, now map[string]string) string {
	for _, path := range slices.Sorted(maps.Keys(recorded)) {
		if hash, ok := now[path]; ok && hash != recorded[path] {
			return fmt.Sprintf("the tokens in %s have changed: their SHA-256 is %.12s…, was %.12s…",
				path, hash, recorded[path])
		}
	}
	return ""
}

// Finding is the result of checking a configuration against the current plugins and data.
// host/train/build creates findings; they are used to compare runs with their configurations.
type Finding struct {
	// Err is the reason why the configuration cannot be trained, such as [plaintoml.Errors]; nil if
	// it can.
	Err error
	// Stale describes how the run in train.out differs from a run of this configuration now; empty
	// if it does not, or if there is no run.
	Stale string
	// Programs holds the hashes of the programs of this configuration, by name, and Data the hashes
	// of the token files, by path.
	Programs, Data map[string]string
}
