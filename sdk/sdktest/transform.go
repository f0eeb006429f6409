package sdktest

import (
	"fmt"

	"github.com/cage-qat/cage/sdk/program"
)

// copying writes a program after another one.
type copying struct {
	b      *program.Builder
	values []program.Value // by the number in the original
}

func newCopy(p *program.Program) *copying {
	c := &copying{b: program.NewBuilder(p.Name)}
	for _, in := range p.Inputs {
		c.values = append(c.values, c.b.Input(in.Name, in.Type))
	}
	return c
}

// node copies the next node.
func (c *copying) node(n *program.Node) program.Value {
	args := make([]program.Value, len(n.Args))
	for i, a := range n.Args {
		args[i] = c.values[a]
	}
	v := c.b.Apply(n.Op, n.Attr, n.Type, args...)
	c.values = append(c.values, v)
	return v
}

// stopName names the value that node i, a stop_gradient, keeps.
func stopName(p *program.Program, i int) string {
	return fmt.Sprintf("%s%d", frozenPrefix, len(p.Inputs)+i)
}
