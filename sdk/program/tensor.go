package program

// Kind is the kind of a tensor of a training run.
type Kind string

// The kinds of tensors. Parameters, evaluated parameters and states are in checkpoints.
const (
	KindParam          Kind = "param"     // a trained parameter of the model or of a quantizer
	KindState          Kind = "state"     // of a parameter's optimizer or correction method
	KindQuantizerState Kind = "kept"      // state that a quantizer carries from step to step
	KindEvaluated      Kind = "evaluated" // replaces a parameter in evaluation, such as its average
	KindGradient       Kind = "gradient"  // of the loss, with respect to a parameter
	KindValue          Kind = "value"     // Q(x) of a weight, the operand of products
	KindMerged         Kind = "merged"    // a frozen weight with its adapter
	KindError          Kind = "error"     // of a factor of an adapter, by the weight's x − Q(x)
	KindPoint          Kind = "point"     // the parameter at which a second gradient is taken
	KindProbed         Kind = "probed"    // that second gradient
	KindNoise          Kind = "noise"     // the key of a quantizer's own random bits
	// the key that the quantizers of a product's operands share
	KindSharedNoise    Kind = "shared noise"
	KindOptimizerNoise Kind = "optimizer noise" // the key of an optimizer's random bits
	KindOpaqueX        Kind = "given x"         // x, the input of an opaque optimizer
	KindGivenGradient  Kind = "given gradient"  // the gradient, another input of it, and of a refresh
	KindDirection      Kind = "direction"       // the update direction, its output
)

// Of returns the name, in memory and in checkpoints, of the tensor of this kind that belongs to
// owner: a parameter, an activation site, or "" if there is only one such tensor.
func (k Kind) Of(owner string) string { return k.PartOf(owner, "") }

// PartOf returns the name of one of several tensors of this kind that belong to owner.
func (k Kind) PartOf(owner, part string) string {
	name := string(k)
	for _, s := range []string{owner, part} {
		if s != "" {
			name += "/" + s
		}
	}
	return name
}
