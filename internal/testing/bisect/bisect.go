// Package bisect finds the operation of a program that an executor computes wrongly.
package bisect

import (
	"fmt"
	"math"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// First returns the first operation of p whose results differ from those of the reference
// implementation by more than the tolerance, as a share of the largest number or of 1, though those
// of its operands do not; it returns "" if there is none. run executes a program with the inputs of
// p, whose outputs are all values of p, and returns them in order. So it computes the operations of
// p, but an executor may compute fewer of them at a time than in p itself.
func First(p *program.Program, inputs map[string]reference.Tensor, tolerance float64,
	run func(p *program.Program) ([]reference.Tensor, error)) (string, error) {
	all, err := everything(p)
	if err != nil {
		return "", err
	}
	want, err := reference.Run(all, inputs)
	if err != nil {
		return "", err
	}
	got, err := run(all)
	if err != nil {
		return "", err
	}
	wrong := make([]bool, p.NumValues())
	for i, o := range all.Outputs {
		id := program.ID(len(p.Inputs) + i)
		d := difference(got[i], want[o.Name])
		if wrong[id] = !(d <= tolerance); !wrong[id] {
			continue
		}
		right := true
		for _, a := range p.Node(id).Args {
			right = right && !wrong[a]
		}
		if right {
			return fmt.Sprintf("%%%d = %s of %v differs by %.2g", id, p.Node(id).Op, p.Node(id).Args, d), nil
		}
	}
	return "", nil
}

// everything returns the program with all values but the inputs as outputs.
func everything(p *program.Program) (*program.Program, error) {
	b := program.NewBuilder(p.Name)
	given := transform.Inputs(b, p, nil)
	values := transform.Interpret(p, given[:len(p.Inputs)], func(_ program.ID, n *program.Node,
		args []program.Value) program.Value {
		return b.Apply(n.Op, n.Attr, n.Type, args...)
	})
	for id := len(p.Inputs); id < p.NumValues(); id++ {
		b.Output(fmt.Sprint("value", id), values[id])
	}
	return b.Build()
}

func difference(got, want reference.Tensor) (most float64) {
	g, w := got.Float64s(), want.Float64s()
	largest := 1.0
	for _, v := range w {
		if a := math.Abs(v); a > largest && !math.IsInf(a, 0) {
			largest = a
		}
	}
	for i := range w {
		if d := math.Abs(g[i]-w[i]) / largest; g[i] != w[i] && !(math.IsNaN(g[i]) && math.IsNaN(w[i])) {
			if most = max(most, d); math.IsNaN(d) {
				return math.Inf(1)
			}
		}
	}
	return most
}
