package posttrain

import (
	"github.com/cage-qat/cage/internal/schema"
	"github.com/cage-qat/cage/sdk/spec"
)

// Values of [Settings].Method.
const (
	RTN  = "rtn"  // rounds each element to the nearest level
	GPTQ = "gptq" // see [Round]
)

// Values of [Settings].Scales.
const (
	// AutoScales means CurrentScales if the levels are equidistant, rows have several groups, and
	// the columns are rounded in order; otherwise OriginalScales.
	AutoScales     = "auto"
	OriginalScales = "original" // computed from the original weights
	CurrentScales  = "current"  // computed from the corrected weights when the loop enters the group
)

// Settings configures the quantization of weights.
type Settings struct {
	Method string `json:"method"`
	// Damping is the fraction of the mean of H's diagonal that is added to the diagonal; 0.01 is
	// usual. As long as H is not positive definite, the fraction is increased tenfold, up to 1.
	Damping float64 `json:"damping,omitempty"`
	// ActivationOrder rounds the columns with the largest inputs first, instead of in order.
	ActivationOrder bool   `json:"activation_order,omitempty"`
	Scales          string `json:"scales,omitempty"`
	// OnePass computes the inputs of all layers of a block in one pass with the block's original
	// weights, instead of in one pass per layer.
	OnePass bool `json:"one_pass,omitempty"`
}

// Quantization holds the settings for quantizing a model's weights, and for its calibration texts.
type Quantization struct {
	Settings
	// Data is a token file or chat file with calibration texts; "" means the run's training set.
	Data string
	// Windows is the number of calibration sequences; rounding to nearest needs none.
	Windows int
	Seed    int64 // seed for choosing the sequences
}

// Keys returns the keys of the settings.
func (q *Quantization) Keys() []schema.Key {
	return []schema.Key{
		{Name: "method", To: &q.Method, Is: schema.OneOf(RTN, GPTQ), Default: GPTQ, Doc: "gptq or rtn"},
		{Name: "data", To: &q.Data, Is: schema.NonEmpty("that names a file"), Default: "",
			Doc: "calibrate with the token file or chat file `FILE`; default: the training set of the run"},
		{Name: "windows", To: &q.Windows, Is: schema.From(0, 1<<31), Default: 128,
			Doc: "sequences of the calibration; 0: none, with --method rtn"},
		{Name: "seed", To: &q.Seed, Is: schema.From(0, 1<<31), Default: 0,
			Doc: "seed for choosing the calibration sequences"},
		{Name: "damping", To: &q.Damping, Is: schema.Above(0, 1), Default: 0.01,
			Doc: "gptq: fraction of the mean of the Hessian's diagonal to add to the diagonal"},
		{Name: "activation_order", To: &q.ActivationOrder, Default: false,
			Doc: "gptq: columns with the largest inputs first"},
		{Name: "one_pass", To: &q.OnePass, Default: false, Doc: "gptq: take the inputs of a " +
			"block's layers from its original weights, which is faster"},
		{Name: "scales", To: &q.Scales, Default: AutoScales,
			Is: schema.OneOf(AutoScales, OriginalScales, CurrentScales),
			Doc: "gptq: scales of groups from the original weights, from the current ones, or auto: " +
				"current for groups of integers"},
	}
}

// Check returns the problems of incompatible settings, under the names of their keys.
func (q *Quantization) Check() (problems schema.Problems) {
	problems.Unless(q.Scales != CurrentScales || !q.ActivationOrder, schema.Problem{Key: "scales",
		Found: `the string "current" beside activation_order, which enters all groups at once`,
		Hint:  "leave one of them out"})
	problems.Unless(q.Method != GPTQ || q.Windows > 0, schema.Problem{Key: "windows",
		Found: "the integer 0, but GPTQ needs a text to calibrate with", Hint: "want at least 1"})
	return problems
}

// Matrix describes how a matrix was quantized.
type Matrix struct {
	Name  string `json:"name"`
	Shape []int  `json:"shape"`
	// WeightError is ‖W − Ŵ‖/‖W‖.
	WeightError float64 `json:"weight_error"`
	*OutputErrors
	// Rotation is the block size of the quantizer's rotation; 0 if the quantizer does not rotate.
	Rotation int `json:"rotation,omitempty"`
	// Damping is the fraction added to H's diagonal; 0 if the matrix was rounded to nearest.
	Damping float64 `json:"damping,omitempty"`
	// Fallback reports whether GPTQ was impossible, so that the matrix was rounded to nearest.
	Fallback bool   `json:"fallback,omitempty"`
	Dead     int    `json:"dead_columns,omitempty"` // number of columns whose inputs were all 0
	Scales   string `json:"scales,omitempty"`
	// Grid is the quantizer's description of its codes and scales; zero if there is none.
	Grid spec.Grid `json:"grid,omitzero"`
}

// OutputErrors holds errors of a layer's outputs on the calibration texts, summed over all tokens.
type OutputErrors struct {
	OutputError   float64 `json:"output_error"`   // ‖(W − Ŵ)X‖²
	RelativeError float64 `json:"relative_error"` // OutputError divided by ‖WX‖²
	RoundingError float64 `json:"rounding_error"` // ‖(W − Q(W))X‖², the error of rounding to nearest
}
