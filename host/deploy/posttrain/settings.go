package posttrain

import (
	"github.com/cage-qat/cage/internal/schema"
	"github.com/cage-qat/cage/sdk/spec"
)

// The methods of quantization.
const (
	RTN  = "rtn"  // rounds each element to the nearest level
	GPTQ = "gptq" // see [Round]
)

// Where the scales of groups come from.
const (
	// AutoScales means CurrentScales if levels are equally far apart, a row has several groups, and
	// columns keep their order; otherwise OriginalScales.
	AutoScales     = "auto"
	OriginalScales = "original" // computed from the original weights
	CurrentScales  = "current"  // computed from the weights as corrected when the group is entered
)

// Settings say how weights are quantized.
type Settings struct {
	Method string `json:"method"`
	// Damping is the share of the mean of H's diagonal that is added to the diagonal; 0.01 is
	// usual. If H is not positive definite with it, ten times as much is tried, repeatedly, up to
	// 1.
	Damping float64 `json:"damping,omitempty"`
	// ActivationOrder rounds the columns with the largest inputs first, instead of from the first
	// to the last.
	ActivationOrder bool   `json:"activation_order,omitempty"`
	Scales          string `json:"scales,omitempty"`
	// OnePass computes the inputs of all layers of a block with its original weights, in one pass
	// instead of one for each layer.
	OnePass bool `json:"one_pass,omitempty"`
}

// Quantization says how the weights of a model are quantized, and with which texts that is
// calibrated.
type Quantization struct {
	Settings
	// Data is a token file, a chat file or a text to calibrate with; empty means the training set
	// of a run.
	Data    string
	Windows int   // number of sequences to calibrate with; 0 means none, which is enough for rounding to nearest
	Seed    int64 // seed for choosing the sequences
}

// Keys describes the settings.
func (q *Quantization) Keys() []schema.Key {
	return []schema.Key{
		{Name: "method", To: &q.Method, Is: schema.OneOf(RTN, GPTQ), Default: GPTQ, Doc: "gptq or rtn"},
		{Name: "data", To: &q.Data, Is: schema.NonEmpty("that names a file"), Default: "",
			Doc: "calibrate with the token file, chat file or text `FILE`; default: the training set of the run"},
		{Name: "windows", To: &q.Windows, Is: schema.From(0, 1<<31), Default: 128, Doc: "sequences of the calibration; 0: none, with --method rtn"},
		{Name: "seed", To: &q.Seed, Is: schema.From(0, 1<<31), Default: 0, Doc: "seed of the choice of sequences"},
		{Name: "damping", To: &q.Damping, Is: schema.Above(0, 1), Default: 0.01, Doc: "gptq: share of the mean of the Hessian's diagonal that is added to it"},
		{Name: "activation_order", To: &q.ActivationOrder, Default: false, Doc: "gptq: columns with the largest inputs first"},
		{Name: "one_pass", To: &q.OnePass, Default: false, Doc: "gptq: take the inputs of a block's layers from its original weights, which is faster"},
		{Name: "scales", To: &q.Scales, Is: schema.OneOf(AutoScales, OriginalScales, CurrentScales), Default: AutoScales,
			Doc: "gptq: scales of groups from the original weights, from the current ones, or auto: current for groups of integers"},
	}
}

// Check returns the settings that do not go together, by the names of their keys.
func (q *Quantization) Check() (problems schema.Problems) {
	problems.Unless(q.Scales != CurrentScales || !q.ActivationOrder, schema.Problem{Key: "scales",
		Found: `the string "current" beside activation_order, which enters all groups at once`, Hint: "leave one of them out"})
	problems.Unless(q.Method != GPTQ || q.Windows > 0, schema.Problem{Key: "windows",
		Found: "the integer 0, but GPTQ needs a text to calibrate with", Hint: "want at least 1"})
	return problems
}

// Matrix reports on one matrix.
type Matrix struct {
	Name  string `json:"name"`
	Shape []int  `json:"shape"`
	// WeightError is ‖W − Ŵ‖/‖W‖.
	WeightError float64 `json:"weight_error"`
	*OutputErrors
	// Rotation is the block size of the quantizer's rotation; 0: it does not rotate.
	Rotation int `json:"rotation,omitempty"`
	// Damping is what was added for H; 0 if the matrix was rounded to the nearest levels.
	Damping float64 `json:"damping,omitempty"`
	// Fallback says that GPTQ was not possible, and the matrix was rounded to the nearest levels
	// instead.
	Fallback bool   `json:"fallback,omitempty"`
	Dead     int    `json:"dead_columns,omitempty"` // number of columns whose inputs were all 0
	Scales   string `json:"scales,omitempty"`
	// Grid is what the quantizer says of its codes and scales; the zero Grid: nothing.
	Grid spec.Grid `json:"grid,omitzero"`
}

// OutputErrors compares the outputs of a layer on the calibration texts, summed over all tokens.
type OutputErrors struct {
	OutputError   float64 `json:"output_error"`   // ‖(W − Ŵ)X‖²
	RelativeError float64 `json:"relative_error"` // the same over ‖WX‖²
	RoundingError float64 `json:"rounding_error"` // ‖(W − Q(W))X‖², the error of rounding to the nearest levels
}
