// Package factor recognizes programs that compute a matrix of small numbers times scales, as quantizers do. The small
// numbers are either integers, with one scale for each row ([Rows]), which can be multiplied in integer arithmetic, or
// four-bit floats in blocks with scales ([Blocks]), which some GPUs multiply directly.
//
// It only reads programs; it does not matter which quantizer a program belongs to.
package factor

import "github.com/cage-qat/cage/sdk/program"

// Names of the outputs that [Rows] adds.
const (
	// OutputIntegers holds the integers, from −127 to 127, as floats of the matrix's shape [n, m].
	OutputIntegers = "factor.integers"
	// OutputScale holds the scales, [n, 1]. If a row has NaN among its integers, its scale is NaN.
	OutputScale = "factor.scale"
)

// largest is the largest magnitude of the integers, so that 8 bits hold them.
const largest = 127

// Rows returns p with two more outputs, whose product is the output with the given name, a matrix. This holds in exact
// arithmetic and, because the integers are small, in binary32, except for the smallest numbers. ok is false if the
// integers and scales cannot be seen in the program.
func Rows(p *program.Program, output string) (factored *program.Program, ok bool) {
	id, ok := p.Output(output)
	if !ok {
		return nil, false
	}
	n := p.Node(id)
	if t := p.TypeOf(id); n == nil || n.Op != program.OpMul || t.DType != program.Float || len(t.Shape) != 2 {
		return nil, false
	}
	known := numbers(p)
	for i, codes := range n.Args {
		scale, c := n.Args[1-i], known[codes]
		step := min(c.step, 1) // with a larger one, the scale could become infinite
		if p.TypeOf(codes).Equal(p.TypeOf(id)) && isScale(p.TypeOf(scale), p.TypeOf(id)) && step > 0 && max(-c.lo, c.hi)/step <= largest {
			return extend(p, func(values []program.Value) []program.Value { return integers(values[codes], values[scale], step) },
				OutputIntegers, OutputScale), true
		}
	}
	return nil, false
}

// isScale reports whether t has one number for each row of a matrix, or one for all.
func isScale(t, matrix program.Type) bool {
	return t.Size() == 1 || len(t.Shape) == 2 && t.Shape[0] == matrix.Shape[0] && t.Shape[1] == 1
}

// integers are the two outputs. The sum of a row, times zero, is added to its scale: it makes the scale NaN if one of the integers is.
func integers(codes, scale program.Value, step float64) []program.Value {
	integers := codes.Scale(1 / step)
	rows := integers.Shape()[0]
	return []program.Value{integers, integers.Sum(1).Reshape(rows, 1).Scale(0).Add(scale).Scale(step)}
}

// extend returns p with more outputs, computed from its values.
func extend(p *program.Program, more func(values []program.Value) []program.Value, names ...string) *program.Program {
	b := program.NewBuilder(p.Name)
	given := make([]program.Value, p.NumValues())
	for i, in := range p.Inputs {
		given[i] = b.Input(in.Name, in.Type)
	}
	values := b.Copy(p, given)
	for _, o := range p.Outputs {
		b.Output(o.Name, values[o.Value])
	}
	for i, v := range more(values) {
		b.Output(names[i], v)
	}
	extended, err := b.Build()
	if err != nil {
		panic(err) // p is not valid
	}
	return extended
}
