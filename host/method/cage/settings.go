package cage

import "github.com/cage-qat/cage/internal/schema"

// Names of methods, as used in configurations.
const (
	MethodCAGE   = "cage"
	MethodLOTION = "lotion"
	MethodOff    = "off"
)

// The methods that have certain keys.
var (
	cageKeys   = []string{MethodCAGE}
	measured   = []string{MethodCAGE, MethodOff} // ‖P_λ‖ is of use without a correction, too
	lotionKeys = []string{MethodLOTION}
)

// FullGradient is the value of method.gradient with which gradients are computed in full
// precision.
const FullGradient = "full"

// Settings is the table [method] of a configuration: how training takes the quantization
// of weights into account, beyond the straight-through estimator. The keys of the other
// methods have their default values, except for Form, which is then Off.
type Settings struct {
	Name   string // MethodCAGE, MethodLOTION or MethodOff
	Method        // CAGE

	Gradient    string // where the gradient is taken: "quantized" or FullGradient
	ParetoEvery int    // steps between measurements of ‖P_λ‖; 0: never

	// LOTION
	Coeff       float64 // strength of the regularizer
	FisherDecay float64 // of the moving average of squared gradients, which is not bias-corrected
	Bits        int     // number of bits of the grid that the regularizer assumes
	Denom       string  // "power" or "symmetric": see Lotion
}

// Lotion returns the configured LOTION. The largest magnitude in a tensor is 2^(bits−1)
// steps of its grid, or one less on the symmetric grid.
func (s Settings) Lotion() Lotion {
	steps := float64(int64(1) << (s.Bits - 1))
	if s.Denom == "symmetric" {
		steps--
	}
	return Lotion{Coeff: s.Coeff, FisherDecay: s.FisherDecay, Denominator: steps}
}

// Keys returns the keys of the table. quantized reports whether any weight is quantized.
func (s *Settings) Keys(quantized func() bool) []schema.Key {
	form := func() any {
		if s.Name != MethodCAGE || !quantized() {
			return Off
		}
		return Default.Form
	}
	return []schema.Key{
		{Name: "name", To: &s.Name, Is: schema.OneOf(MethodCAGE, MethodLOTION, MethodOff), Common: true, Default: MethodCAGE,
			Doc: `method; off: none, as with form = "off"`},
		{Name: "form", To: &s.Form, Is: schema.OneOf(Decoupled, Coupled, Off), For: cageKeys,
			Derive: form, Derived: `"decoupled"; "off" when no weight is quantized`,
			Doc: "where the correction enters: the step, the gradient, or nowhere"},
		{Name: "gradient", To: &s.Gradient, Is: schema.OneOf("quantized", FullGradient), For: measured, Common: true, Default: "quantized",
			Doc: "where the gradient is taken: at the quantized model, passed straight through (quantized); or at x, weights and activations in full precision (full), as in the analysis of the correction"},
		{Name: "variant", To: &s.Variant, Is: schema.OneOf(Paper, Official), For: cageKeys, Default: Default.Variant,
			Doc: "decoupled form: the residual at the decayed point with the rate of the step (paper), or after the step with the next rate (official)"},
		{Name: "lambda", To: &s.Lambda, Is: schema.Between(0, 1e6), For: measured, Default: Default.Lambda,
			Doc: "strength λ at the end of the ramp, and of ‖P_λ‖; 0: no correction"},
		{Name: "silence", To: &s.Silence, Is: schema.Below(0, 1), For: cageKeys, Default: Default.Silence,
			Doc: "silence ratio s: fraction of the run before the correction starts"},
		{Name: "ramp", To: &s.Ramp, Is: schema.OneOf(Linear, Constant), For: cageKeys, Default: Default.Ramp,
			Doc: "how λ goes on after the silence"},
		{Name: "pareto_every", To: &s.ParetoEvery, Is: schema.From(0, schema.Most), For: measured, Default: 0,
			Doc: "steps between measurements of ‖P_λ‖, the norm of ∇f(x) + λ·(x − Q(x)) and the paper's measure of stationarity, each of which costs a full-precision forward and backward pass; 0: never"},
		{Name: "coeff", To: &s.Coeff, Is: schema.Between(0, 1e12), For: lotionKeys, Default: DefaultLotion.Coeff,
			Doc: "strength of the regularizer ½·coeff·Σ F·σ²; 0: none. The default is the best value in the CAGE paper's comparison"},
		{Name: "fisher_decay", To: &s.FisherDecay, Is: schema.Below(0, 1), For: lotionKeys, Default: DefaultLotion.FisherDecay,
			Doc: "decay of F, the moving average of squared gradients, which is not bias-corrected"},
		{Name: "bits", To: &s.Bits, Is: schema.From(2, 16), For: lotionKeys, Common: true, Default: 4,
			Doc: "bits of the grid of the regularizer; those of the quantizer of weights, as a rule"},
		{Name: "denom", To: &s.Denom, Is: schema.OneOf("power", "symmetric"), For: lotionKeys, Default: "power",
			Doc: "the grid's step is the largest magnitude of the tensor over 2^(bits−1) (power, as in the CAGE paper's comparison), or over 2^(bits−1) − 1 (symmetric, the integer grid of the LOTION paper)"},
	}
}

// Form says where the correction enters the step.
type Form string

// The forms of the correction.
const (
	// Off trains with the straight-through estimator alone.
	Off Form = "off"
	// Decoupled adds the correction after the optimizer, outside its preconditioning
	// (paper Eq. 5, Algorithm 1).
	Decoupled Form = "decoupled"
	// Coupled adds λ_t·e to the gradient that the optimizer sees (paper §3.1,
	// "Error coupling").
	Coupled Form = "coupled"
)

// Variant says at which point the decoupled correction takes its residual, and with which
// rate.
type Variant string

// The variants of the decoupled form. The coupled form has only one.
const (
	// Paper takes e at the decayed point, before the optimizer's update, and multiplies
	// it by the rate α_t of the step (Algorithm 1).
	Paper Variant = "paper"
	// Official takes e at the point after the whole optimizer step and multiplies it by
	// the rate after the scheduler has advanced, α_{t+1}, as the authors' published code
	// does.
	Official Variant = "official"
)

// Ramp is the shape of λ_t after the silent part of the run.
type Ramp string

// The shapes of the ramp.
const (
	Linear   Ramp = "linear"   // grows from 0 to λ at the last step (paper Eq. 6)
	Constant Ramp = "constant" // λ from the start; an option of the published code
)

// Method is the configuration of CAGE for a run.
type Method struct {
	Form    Form
	Variant Variant
	// Lambda is the final weight λ ≥ 0.
	Lambda float64
	// Silence is the fraction s of the run without correction, 0 ≤ s < 1.
	Silence float64
	Ramp    Ramp
}

// Default is the paper's setting for pre-training: decoupled, λ = 2, s = 0.9.
var Default = Method{Form: Decoupled, Variant: Paper, Lambda: 2, Silence: 0.9, Ramp: Linear}
