package plan

import (
	"fmt"
	"slices"

	"github.com/cage-qat/cage/host/compute/cpu"
	"github.com/cage-qat/cage/host/compute/loops"
)

// sideBySide merges consecutive passes into one instruction if they read and write only scalars and
// inputs and outputs of the plan, without conflicts: the passes of the updates of
// several tensors. Tensors of all sizes then keep all cores busy.
func (c *compiler) sideBySide() {
	var list []instruction
	for _, in := range c.list {
		if last := len(list) - 1; last >= 0 && c.besides(&list[last], &in) {
			list[last] = joined(list[last], in)
			continue
		}
		list = append(list, in)
	}
	c.list = list
}

func (c *compiler) besides(a, b *instruction) bool {
	of := func(in *instruction) (ok bool) {
		return in.passes != nil && !slices.ContainsFunc(slices.Concat(in.in, in.out), func(s int) bool {
			return c.slots[s].inside() && c.slots[s].size > 1
		})
	}
	return of(a) && of(b) && !c.disturbs(a, b) && !c.disturbs(b, a)
}

// disturbs reports whether an instruction writes what another one reads or writes, or may reuse the
// memory of its inputs.
func (c *compiler) disturbs(a, b *instruction) bool {
	return slices.ContainsFunc(a.out, func(s int) bool {
		replaced := -1
		if output := c.slots[s].output; output >= 0 {
			replaced = c.replaced[output] // the slot of an input has its index
		}
		return slices.Contains(b.in, s) || slices.Contains(b.out, s) ||
			replaced >= 0 && slices.Contains(b.in, replaced)
	})
}

func joined(a, b instruction) instruction {
	passes := slices.Concat(a.passes, b.passes)
	joined := instruction{name: fmt.Sprintf("%d passes", len(passes)), passes: passes,
		in: slices.Concat(a.in, b.in), out: slices.Concat(a.out, b.out)}
	joined.run = func(in, out []any, parallel loops.Parallel) error {
		calls := make([]cpu.Call, len(passes))
		for i, p := range passes {
			calls[i] = cpu.Call{Pass: p.Pass, Inputs: in[:p.in], Outputs: out[:p.out]}
			in, out = in[p.in:], out[p.out:]
		}
		return cpu.Run(calls, parallel)
	}
	return joined
}
