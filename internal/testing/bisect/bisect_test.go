package bisect_test

import (
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/testing/bisect"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// TestFirst checks that the wrong operation is found, not those that read its result.
func TestFirst(t *testing.T) {
	b := program.NewBuilder("test")
	x := b.Input("x", program.FloatType(2))
	b.Output("y", x.Neg().Exp().Shift(1).Sqrt())
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	in := map[string]reference.Tensor{"x": reference.Floats([]float64{1, -2}, 2)}
	find := func(wrong bool) string {
		t.Helper()
		found, err := bisect.First(p, in, 1e-6, func(p *program.Program) ([]reference.Tensor, error) {
			out, err := reference.Run(p, in)
			var list []reference.Tensor
			for _, o := range p.Outputs {
				v := out[o.Name].Clone()
				if n := p.Node(o.Value); wrong && v.Len() == 2 && n.Op != program.OpNeg {
					v.Floats[1] += 0.1
				}
				list = append(list, v)
			}
			return list, err
		})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if found := find(false); found != "" {
		t.Errorf("found %s in a right execution", found)
	}
	if found := find(true); !strings.HasPrefix(found, "%2 = exp of [1] differs by") {
		t.Errorf("found %q, want the exponential", found)
	}
}
