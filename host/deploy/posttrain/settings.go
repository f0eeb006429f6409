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

// Sources of the scales of groups.
const (
	// AutoScales means CurrentScales if levels are equidistant, a row has several groups, and
	// columns keep their order; otherwise OriginalScales.
	AutoScales     = "auto"
	OriginalScales = "original" // computed from the original weights
	CurrentScales  = "current"  // computed from the corrected weights when the loop enters the group
)

// Settings are the settings of the quantization of weights.
type Settings struct {
	Method string `json:"method"`
	// Damping is the fraction of the mean of H's diagonal that is added to the diagonal; 0.01 is
	// usual. If H is then not positive definite, it is increased tenfold, repeatedly, up to 1.
	Damping float64 `json:"damping,omitempty"`
	// ActivationOrder rounds the columns with the largest inputs first, instead of in order.
	ActivationOrder bool   `json:"activation_order,omitempty"`
	Scales          string `json:"scales,omitempty"`
	// OnePass computes the inputs of all layers of a block with its original weights, in one pass
	// instead of one for each layer.
	OnePass bool `json:"one_pass,omitempty"`
}

// Quantization holds the settings of the quantization of a model's weights, and of its
// calibration texts.
type Quantization struct {
	Settings
	// Data is a token file or a chat file to calibrate with; empty means the training set of a run.
	Data string
	// Windows is the number of calibration sequences; rounding to nearest needs none.
	Windows int
	Seed    int64 // seed for choosing the sequences
}

// Keys describes the settings.
func (q *Quantization) Keys() []schema.Key {
	return []schema.Key{
		{Name: "method", To: &q.Method, Is: schema.OneOf(RTN, GPTQ), Default: GPTQ, Doc: "gptq or rtn"},
		{Name: "data", To: &q.Data, Is: schema.NonEmpty("that names a file"), Default: "",
			Doc: "calibrate with the token file or chat file `FILE`; default: the training set of the run"},
		{Name: "windows", To: &q.Windows, Is: schema.From(0, 1<<31), Default: 128,
			Doc: "sequences of the calibration; 0: none, with --method rtn"},
		{Name: "seed", To: &q.Seed, Is: schema.From(0, 1<<31), Default: 0,
			Doc: "seed of the choice of sequences"},
		{Name: "damping", To: &q.Damping, Is: schema.Above(0, 1), Default: 0.01,
			Doc: "gptq: share of the mean of the Hessian's diagonal that is added to it"},
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

// Check returns incompatible settings, by the names of their keys.
func (q *Quantization) Check() (problems schema.Problems) {
	problems.Unless(q.Scales != CurrentScales || !q.ActivationOrder, schema.Problem{Key: "scales",
		Found: `the string "current" beside activation_order, which enters all groups at once`,
		Hint:  "leave one of them out"})
	problems.Unless(q.Method != GPTQ || q.Windows > 0, schema.Problem{Key: "windows",
		Found: "the integer 0, but GPTQ needs a text to calibrate with", Hint: "want at least 1"})
	return problems
}

// Matrix is the report on one matrix.
type Matrix struct {
	Name  string `json:"name"`
	Shape []int  `json:"shape"`
	// WeightError is ‖W − Ŵ‖/‖W‖.
	WeightError float64 `json:"weight_error"`
	*OutputErrors
	// Rotation is the block size of the quantizer's rotation; 0: it does not rotate.
	Rotation int `json:"rotation,omitempty"`
	// Damping is the fraction added to H's diagonal; 0 if the matrix was rounded to nearest.
	Damping float64 `json:"damping,omitempty"`
	// Fallback reports whether GPTQ was not possible, and the matrix was rounded to nearest instead.
	Fallback bool   `json:"fallback,omitempty"`
	Dead     int    `json:"dead_columns,omitempty"` // number of columns whose inputs were all 0
	Scales   string `json:"scales,omitempty"`
	// Grid is the quantizer's description of its codes and scales; zero if it gives none.
	Grid spec.Grid `json:"grid,omitzero"`
}

// OutputErrors are errors of a layer's outputs on the calibration texts, summed over all tokens.
type OutputErrors struct {
	OutputError   float64 `json:"output_error"`   // ‖(W − Ŵ)X‖²
	RelativeError float64 `json:"relative_error"` // OutputError divided by ‖WX‖²
	RoundingError float64 `json:"rounding_error"` // ‖(W − Q(W))X‖², the error of rounding to nearest
}
