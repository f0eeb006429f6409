package sdk

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

// Quantizer writes the fake quantization Q of a tensor.
type Quantizer interface {
	// Describe names the plugin and declares its parameters.
	Describe() Description
	// Quantize builds Q(x) for one site of the model. x has the site's shape.
	// It is called once for each site and must be pure.
	Quantize(b *program.Builder, x program.Value, site Site) (Quantized, error)
}

// Role says what a quantizer is applied to.
type Role string

// The roles of a site.
const (
	RoleWeight     Role = "weight"
	RoleActivation Role = "activation"
)

// Site is a place in the model where a tensor is quantized.
type Site struct {
	// Role is weight or activation.
	Role Role
	// Name is the parameter's name, or that of the product whose input it is.
	Name string
	// Shape is that of the tensor. The last axis is the one the matrix product
	// contracts: a row is one output channel of a weight, one token of an
	// activation.
	Shape []int
	// Values holds the declared parameters, checked and complete.
	Values
}

// RowLen is the length of a row: the size of the last axis.
func (s Site) RowLen() int {
	if len(s.Shape) == 0 {
		return 1
	}
	return s.Shape[len(s.Shape)-1]
}

// Quantized is what a quantizer answers.
type Quantized struct {
	// Value is Q(x): the shape of x, on the grid, in the original domain. Required.
	Value program.Value
	// Surrogate is what the backward pass differentiates in place of Value. The
	// forward value stays Value bit for bit. Absent: x itself, the plain
	// straight-through estimator.
	Surrogate program.Value
	// Codes, Scale and Mask describe the quantization for export and
	// diagnostics: integer codes in the quantization domain (int or float
	// holding integers, the shape of x), the scale of each group, and the
	// straight-through mask (bool, the shape of x). Each may be absent.
	Codes, Scale, Mask program.Value
	// Homogeneous promises Q(c·x) = c·Q(x) for every c > 0 up to rounding, as
	// holds for scales in proportion to the data without an additive constant.
	// The host may then derive the error at a rescaled point from the error it
	// has.
	Homogeneous bool
}

// Names of the inputs and outputs of a quantizer's program.
const (
	InputX          = "x"
	OutputValue     = "value"
	OutputSurrogate = "surrogate"
	OutputCodes     = "codes"
	OutputScale     = "scale"
	OutputMask      = "mask"
)

// QuantizerProgram is a quantizer's answer for one site in the form that crosses
// the process boundary: one input x, and the outputs value and surrogate,
// optionally codes, scale and mask.
type QuantizerProgram struct {
	Program     *program.Program
	Homogeneous bool
}

// BuildQuantizer calls q for one site and returns its checked program. Errors of
// the author's code, panics included, come back as errors that name the site.
func BuildQuantizer(q Quantizer, site Site) (out QuantizerProgram, err error) {
	var name string
	defer func() {
		if r := recover(); r != nil {
			err = panicError(KindQuantizer, name, site.Name, r)
		}
	}()
	name = q.Describe().Name
	b := program.NewBuilder(name + "/" + site.Name)
	x := b.Input(InputX, program.FloatType(site.Shape...))
	res, err := q.Quantize(b, x, site)
	if err != nil {
		return out, &SiteError{Kind: KindQuantizer, Plugin: name, Site: site.Name, Err: err}
	}
	if !res.Surrogate.Valid() {
		res.Surrogate = x
	}
	b.Output(OutputValue, res.Value)
	b.Output(OutputSurrogate, res.Surrogate)
	optional := []struct {
		name string
		v    program.Value
	}{{OutputCodes, res.Codes}, {OutputScale, res.Scale}, {OutputMask, res.Mask}}
	for _, o := range optional {
		if o.v.Valid() {
			b.Output(o.name, o.v)
		}
	}
	p, err := b.Build()
	if err == nil {
		out = QuantizerProgram{Program: p, Homogeneous: res.Homogeneous}
		err = out.Check(site.Shape)
	}
	if err != nil {
		return QuantizerProgram{}, &SiteError{Kind: KindQuantizer, Plugin: name, Site: site.Name, Err: err}
	}
	return out, nil
}

// Check verifies the signature of a valid program for a site of the given shape:
// the input x and the outputs value and surrogate are floats of that shape; codes
// are numbers and mask a bool, of that shape; scale is a float; there is no other
// output.
func (q QuantizerProgram) Check(shape []int) error {
	p := q.Program
	if p == nil {
		return errors.New("the program is absent")
	}
	want := program.FloatType(shape...)
	if len(p.Inputs) != 1 || p.Inputs[0].Name != InputX || !p.Inputs[0].Type.Equal(want) {
		return fmt.Errorf("a quantizer's program takes one input %s: %s", InputX, want)
	}
	for _, name := range []string{OutputValue, OutputSurrogate} {
		id, ok := p.Output(name)
		if !ok {
			return fmt.Errorf("a quantizer's program needs the output %s", name)
		}
		if t := p.TypeOf(id); !t.Equal(want) {
			return fmt.Errorf("output %s is %s: it must have the type of x, %s", name, t, want)
		}
	}
	for _, o := range p.Outputs {
		if err := checkOutput(o.Name, p.TypeOf(o.Value), shape); err != nil {
			return err
		}
	}
	return nil
}

// checkOutput verifies one of the outputs that may be absent.
func checkOutput(name string, t program.Type, shape []int) error {
	shaped := slices.Equal(t.Shape, shape)
	switch name {
	case OutputValue, OutputSurrogate:
	case OutputCodes:
		if !shaped || t.DType == program.Bool {
			return fmt.Errorf("output %s is %s: it must hold numbers in the shape of x, %v", name, t, shape)
		}
	case OutputMask:
		if !shaped || t.DType != program.Bool {
			return fmt.Errorf("output %s is %s: it must be bool in the shape of x, %v", name, t, shape)
		}
	case OutputScale:
		if t.DType != program.Float {
			return fmt.Errorf("output %s is %s: it must be float", name, t)
		}
	default:
		return fmt.Errorf("output %s is unknown: there are value, surrogate, codes, scale and mask", name)
	}
	return nil
}
