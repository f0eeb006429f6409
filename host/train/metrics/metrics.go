// Package metrics defines and writes the records of a run: metrics.jsonl, one record per
// logged step; summary.json, the final results; trajectory.jsonl, the points visited, for
// problems of few parameters; and samples.jsonl, texts that a language model generated, if
// configured.
//
// It defines the records and keeps the files consistent across crashes and resumes. It
// computes nothing (host/train and host/cage do), displays nothing (host/train/console does)
// and plots nothing (host/study/figure does).
package metrics

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strconv"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/vfs"
)

// Number is a float64 with a JSON encoding of NaN and the infinities: the strings
// "NaN", "Inf" and "-Inf".
type Number float64

// Some returns a pointer to x as a Number: a value that has been measured.
func Some(x float64) *Number {
	n := Number(x)
	return &n
}

// MarshalJSON writes the shortest text that reads back as the same number.
func (n Number) MarshalJSON() ([]byte, error) {
	switch x := float64(n); {
	case math.IsNaN(x):
		return []byte(`"NaN"`), nil
	case math.IsInf(x, 1):
		return []byte(`"Inf"`), nil
	case math.IsInf(x, -1):
		return []byte(`"-Inf"`), nil
	default:
		return json.Marshal(x)
	}
}

// UnmarshalJSON reads a number or one of the three strings.
func (n *Number) UnmarshalJSON(text []byte) error {
	switch string(text) {
	case `"NaN"`:
		*n = Number(math.NaN())
	case `"Inf"`:
		*n = Number(math.Inf(1))
	case `"-Inf"`:
		*n = Number(math.Inf(-1))
	default:
		var x float64
		if err := json.Unmarshal(text, &x); err != nil || string(text) == "null" {
			return fmt.Errorf(`%s is neither a number nor "NaN", "Inf" or "-Inf"`, text)
		}
		*n = Number(x)
	}
	return nil
}

// Record is one line of metrics.jsonl: the measurements after an optimizer step. A
// nil field was not measured at that step and is left out.
type Record struct {
	Step int `json:"step"` // optimizer steps done, from 1
	// Loss is the training loss without LOTION's regularizer, in nats per token: the mean over the
	// micro-batches of the step.
	Loss Number `json:"loss"`
	LR   Number `json:"lr"` // α_t, the learning rate of the step
	// Lambda is λ_t, the weight of CAGE's correction in the step: 0 while silent or off, and if no
	// weight is quantized. Strength is Σ α·λ of the steps so far for CAGE's decoupled correction,
	// and the degree of quantization for PARQ.
	Lambda   *Number `json:"lambda,omitempty"`
	Strength *Number `json:"strength,omitempty"`
	Tokens   int64   `json:"tokens"` // target tokens since the start of training, resumes included

	Counts map[string]int64 `json:"counts,omitempty"` // counters of the method so far, by name

	// Components of Loss in distillation, in nats per token.
	Divergence   *Number `json:"divergence,omitempty"`    // from the teacher's predictions
	CrossEntropy *Number `json:"cross_entropy,omitempty"` // of the tokens: the loss without a teacher

	// Seconds is the time of all steps so far, resumes included; without evaluations, checkpoints,
	// and the measurement of stationarity and of movement.
	Seconds Number `json:"seconds"`
	// TokensPerSecond and FLOPSPerSecond are means over the steps since the previous record.
	// FLOPSPerSecond counts the operations of the model's forward and backward passes, and MFU is
	// its share of the device's peak.
	TokensPerSecond *Number `json:"tokens_per_second,omitempty"`
	FLOPSPerSecond  *Number `json:"flops_per_second,omitempty"`
	MFU             *Number `json:"mfu,omitempty"`
	MemoryBytes     *Number `json:"memory_bytes,omitempty"` // resident size of the process
	GradNorm        *Number `json:"grad_norm,omitempty"`    // ‖g‖₂ over all parameters, unclipped

	// Quantization error e = x − Q(x) over the quantized weights x.
	ErrorNorm2    *Number `json:"error_norm2,omitempty"`    // Σ‖e‖²
	ErrorRel      *Number `json:"error_rel,omitempty"`      // Σ‖e‖² / Σ‖x‖²
	AvgErrNorm    *Number `json:"avg_err_norm,omitempty"`   // mean over the weights of ‖e‖₂
	AvgCorrNorm   *Number `json:"avg_corr_norm,omitempty"`  // CAGE: mean over the weights of λ_t·‖e‖₂
	AppliedParams *int    `json:"applied_params,omitempty"` // CAGE: number of weights corrected

	// Stationarity, ‖∇f + λ(x − Q(x))‖₂ (CAGE paper Eq. 2): Pareto with ∇f at x, in a forward pass
	// without quantization; ParetoSTE with the gradient that training uses, ∇f at Q(x).
	Pareto    *Number `json:"pareto,omitempty"`
	ParetoSTE *Number `json:"pareto_ste,omitempty"`

	// Movement of the quantized weights between quantization cells, measured on a fixed random
	// subset of their coordinates, over a window of the most recent samples. Times are in
	// steps, with the sampling interval as resolution.

	FlipRate *Number `json:"flip_rate,omitempty"` // fraction of codes changed since the last sample
	// Coherence is the mean over coordinates of |Σe| / Σ|e|, CoherenceVector is ‖Σe‖₂ / Σ‖e‖₂ over
	// all coordinates; both once the window is full.
	Coherence       *Number `json:"coherence,omitempty"`
	CoherenceVector *Number `json:"coherence_vector,omitempty"`
	// Dwell times are the lengths of the visits of a code that overlap the window: their mean,
	// median, 90th percentile, and maximum L_max (CAGE paper Eq. 9). DwellVectorMean is the mean
	// length of the vector visits, which end when any chosen code of a weight changes.
	DwellMean       *Number `json:"dwell_mean,omitempty"`
	DwellMedian     *Number `json:"dwell_median,omitempty"`
	DwellP90        *Number `json:"dwell_p90,omitempty"`
	DwellMax        *Number `json:"dwell_max,omitempty"`
	DwellVectorMean *Number `json:"dwell_vector_mean,omitempty"`
	// Visits counts the visits since the first sample, as a mean over coordinates. VisitSum is the
	// largest ‖E_k‖₂ of a vector visit (Eq. 8), over samples. ResidualMax is the largest ‖e‖₂ of a
	// weight's chosen coordinates, B (Eq. 11).
	Visits      *Number `json:"visits,omitempty"`
	VisitSum    *Number `json:"visit_sum,omitempty"`
	ResidualMax *Number `json:"residual_max,omitempty"`
	// Weights holds the measurements of individual tensors, by the name of the parameter. An
	// empty map is written, like every other measured value; nil means not measured.
	Weights map[string]WeightMeasures `json:"weights,omitzero"`

	// ValLoss is the validation loss in nats per token, over the same batches at every step.
	ValLoss *Number `json:"val_loss,omitempty"`
	ValPPL  *Number `json:"val_ppl,omitempty"` // exp(ValLoss)

	Distance *Number `json:"distance,omitempty"` // problems: √((x−x*)ᵀA(x−x*)), x* the optimum

	// Skipped counts the steps so far that were skipped because a value was not finite, and
	// Uncorrected the corrections of single weights that were skipped because x − Q(x) was not.
	Skipped     int `json:"skipped,omitempty"`
	Uncorrected int `json:"uncorrected,omitempty"`
}

func (r Record) at() int { return r.Step }

// WeightMeasures holds the measurements of one trained tensor, in fields with the same names
// as in [Record]: for quantized weights their movement between cells, and for all tensors
// those that diagnostics.tensors enables.
type WeightMeasures struct {
	FlipRate        *Number `json:"flip_rate,omitempty"`
	DwellMean       *Number `json:"dwell_mean,omitempty"`
	Coherence       *Number `json:"coherence,omitempty"`
	CoherenceVector *Number `json:"coherence_vector,omitempty"`
	GradNorm        *Number `json:"grad_norm,omitempty"` // before clipping
	LR              *Number `json:"lr,omitempty"`        // with the factor of the tensor's group
	ErrorRel        *Number `json:"error_rel,omitempty"` // ‖x − Q(x)‖² / ‖x‖², for a quantized weight
}

// Point is one line of trajectory.jsonl: the parameters of a problem after a step.
type Point struct {
	Step int    `json:"step"` // completed optimizer steps; 0: the start
	X    Vector `json:"x"`    // row by row
}

func (p Point) at() int { return p.Step }

// Vector is a list of float32 numbers with the JSON encoding of [Number].
type Vector []float32

// MarshalJSON writes the shortest texts that read back as the same float32 numbers.
func (v Vector) MarshalJSON() ([]byte, error) {
	text := make([]byte, 0, 12*len(v)+2)
	text = append(text, '[')
	for i, x := range v {
		if i > 0 {
			text = append(text, ',')
		}
		if f := float64(x); math.IsNaN(f) || math.IsInf(f, 0) {
			one, _ := Number(f).MarshalJSON() // a string
			text = append(text, one...)
			continue
		}
		text = strconv.AppendFloat(text, float64(x), 'g', -1, 32)
	}
	return append(text, ']'), nil
}

// UnmarshalJSON reads a list of numbers as MarshalJSON writes them.
func (v *Vector) UnmarshalJSON(text []byte) error {
	var list []Number
	if err := plainjson.UnmarshalPart(text, &list); err != nil {
		return fmt.Errorf("x: %w", err)
	}
	*v = make(Vector, len(list))
	for i, x := range list {
		(*v)[i] = float32(x)
	}
	return nil
}

// Sample is one line of samples.jsonl: the texts that a model generated after a step.
type Sample struct {
	Step  int    `json:"step"` // optimizer steps done
	Texts []Text `json:"texts"`
}

// Text is a model's continuation of a prompt. Invalid UTF-8, which a byte-level tokenizer may
// decode to, is replaced by U+FFFD.
type Text struct {
	Prompt string `json:"prompt"`
	Text   string `json:"text"` // without the prompt
}

func (s Sample) at() int { return s.Step }

// ParseSample reads a line of samples.jsonl.
func ParseSample(line []byte) (Sample, error) {
	var s Sample
	if err := plainjson.Unmarshal(line, &s); err != nil {
		return Sample{}, fmt.Errorf("not a sample: %w", err)
	}
	return s, nil
}

// Summary is the result of a run. A nil field was not measured.
type Summary struct {
	Name       string `json:"name"`              // name of the run
	Completed  bool   `json:"completed"`         // whether all steps were done
	Stopped    Stop   `json:"stopped,omitempty"` // reason why an incomplete run ended
	Error      string `json:"error,omitempty"`   // that ended it; empty if interrupted
	Steps      int    `json:"steps"`             // optimizer steps done
	TotalSteps int    `json:"total_steps"`       // optimizer steps configured
	Tokens     int64  `json:"tokens"`            // target tokens, as in records
	Parameters int64  `json:"parameters"`        // parameters of the model

	// NonEmbedding counts the parameters outside the embedding and the head: the N of
	// scaling laws.
	NonEmbedding int64 `json:"non_embedding_parameters,omitempty"`

	Seconds         Number  `json:"seconds"`                     // seconds of steps, as in records
	TokensPerSecond *Number `json:"tokens_per_second,omitempty"` // mean over the run
	TrainLoss       *Number `json:"train_loss,omitempty"`        // of the last step
	ValLoss         *Number `json:"val_loss,omitempty"`          // final (train.final_eval_batches)
	ValPPL          *Number `json:"val_ppl,omitempty"`           // exp(ValLoss)
	Distance        *Number `json:"distance,omitempty"`          // problems: as in records
	ErrorNorm2      *Number `json:"error_norm2,omitempty"`       // Σ‖x − Q(x)‖² before the last step
	ErrorRel        *Number `json:"error_rel,omitempty"`         // the same over Σ‖x‖²
	Skipped         int     `json:"skipped"`                     // as in records
	Uncorrected     int     `json:"uncorrected,omitempty"`       // as in records

	Sources []Epochs `json:"sources,omitempty"` // sources of a mixture, in its order

	Dir string `json:"dir"` // the run directory
	// Method is the correction method, and Settings repeats its settings.
	Method   string         `json:"method"`
	Settings map[string]any `json:"method_settings,omitempty"`
	// Counts are the counters of the method, by name.
	Counts map[string]int64 `json:"counts,omitempty"`
	// StartSeconds is the time from the call to the first step. PluginSeconds is the part
	// of it until the plugins had started and returned their programs.
	StartSeconds  float64 `json:"start_seconds"`
	PluginSeconds float64 `json:"plugin_seconds"`
}

// Epochs is the number of epochs of a data source that a run has consumed.
type Epochs struct {
	Path   string  `json:"path"`
	Epochs float64 `json:"epochs"`
}

// Stop is the reason why a run ended before its last step.
type Stop string

// The reasons in a [Summary] that is not completed. A process that was killed writes
// none.
const (
	Interrupted Stop = "interrupted" // by a signal, or after the requested number of steps
	Diverged    Stop = "diverged"    // its loss or gradient was not finite
	Failed      Stop = "failed"
)

// WriteSummary writes a summary to path as indented JSON, atomically.
func WriteSummary(path vfs.Path, s Summary) error { return atomicfile.WriteJSON(path, s) }

// maxSummary is the largest size of a summary in bytes, far above any real one.
const maxSummary = 1 << 20

// ReadSummary reads the summary at path.
func ReadSummary(path vfs.Path) (s Summary, err error) {
	err = readSummary(path, &s)
	return s, err
}

func readSummary(path vfs.Path, to any) error {
	text, err := path.ReadSmallFile(maxSummary)
	if err != nil {
		return err
	}
	if err := plainjson.Unmarshal(text, to); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// countsPrefix is the prefix of the names of a method's counters.
const countsPrefix = "counts."

// ReadNumbers returns every number in the summary at path by its name, and whether the run is
// complete. If the file does not exist, the run is still in progress.
func ReadNumbers(path vfs.Path) (numbers map[string]float64, completed bool, err error) {
	var fields map[string]json.RawMessage
	if err := readSummary(path, &fields); errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	} else if err != nil {
		return nil, false, err
	}
	numbers = numbersOf(fields)
	var counts map[string]int64
	if raw := fields["counts"]; raw != nil && json.Unmarshal(raw, &counts) == nil {
		for name, n := range counts {
			numbers[countsPrefix+name] = float64(n)
		}
	}
	return numbers, string(fields["completed"]) == "true", nil
}

func numbersOf(fields map[string]json.RawMessage) map[string]float64 {
	numbers := map[string]float64{}
	for name, raw := range fields {
		var n Number
		if n.UnmarshalJSON(raw) == nil {
			numbers[name] = float64(n)
		}
	}
	return numbers
}

// Numbers returns the numbers in a line of metrics.jsonl by their names, without those of single
// weights; nil if the line is not a record.
func Numbers(line []byte) map[string]float64 {
	var fields map[string]json.RawMessage
	if json.Unmarshal(line, &fields) != nil {
		return nil
	}
	return numbersOf(fields)
}
