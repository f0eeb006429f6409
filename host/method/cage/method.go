package cage

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
