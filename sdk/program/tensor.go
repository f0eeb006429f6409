package program

// TensorID identifies a tensor of a training. Its String is the tensor's name, in memory and in
// checkpoints.
type TensorID struct {
	Kind  Kind
	Owner string // the parameter or activation site that it belongs to; "" if there is only one tensor of its kind
	Part  string // tells the tensors of one kind and owner apart, such as an optimizer's states; or ""
}

// String joins the parts that are not empty by slashes.
func (t TensorID) String() string {
	name := string(t.Kind)
	for _, part := range []string{t.Owner, t.Part} {
		if part != "" {
			name += "/" + part
		}
	}
	return name
}

// Kind is what a tensor of a training is.
type Kind string

// The kinds of tensors. Parameters, evaluated parameters and states are in checkpoints.
const (
	KindParam          Kind = "param"           // what is trained: of the model, or of a quantizer
	KindState          Kind = "state"           // of a parameter's optimizer, or of its method
	KindQuantizerState Kind = "kept"            // what a quantizer carries from step to step
	KindEvaluated      Kind = "evaluated"       // what the model is evaluated with instead of a parameter
	KindGradient       Kind = "gradient"        // of the loss, with respect to a parameter
	KindValue          Kind = "value"           // Q(x) of a weight, as products use it
	KindPoint          Kind = "point"           // where a second gradient is taken
	KindProbed         Kind = "probed"          // that second gradient
	KindNoise          Kind = "noise"           // the key of a quantizer's own random bits
	KindSharedNoise    Kind = "shared noise"    // the key that the quantizers of a product's operands share
	KindOptimizerNoise Kind = "optimizer noise" // the key of an optimizer's random bits
	KindOpaqueX        Kind = "given x"         // x, as an optimizer that is no program gets it
	KindOpaqueGradient Kind = "given gradient"  // its gradient
	KindDirection      Kind = "direction"       // what such an optimizer returns
)

// Of is the name of the tensor of this kind that belongs to owner.
func (k Kind) Of(owner string) string { return TensorID{Kind: k, Owner: owner}.String() }

// PartOf is the name of one of several tensors of this kind that belong to owner.
func (k Kind) PartOf(owner, part string) string {
	return TensorID{Kind: k, Owner: owner, Part: part}.String()
}
