package refresh

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// split is a refresh program in two parts, for a refresh that takes effect some
// updates after the one whose statistics it reads.
//
// Some of the states that it renews only refreshes write, such as inverse roots: they
// are what they were when the refresh began, and are simply replaced. Others updates
// write, too, such as SOAP's momentum, which lives in the bases that are renewed: for
// these the refresh is a function, to be applied to what they have become.
type split struct {
	// background is the part that does not depend on what changes meanwhile. It
	// reads step and state as at the beginning, and returns the states that are
	// replaced and what is handed to apply, as floats. It is nil where that is
	// nothing.
	background *program.Program
	// apply maps the states that updates write, as they are at the end, to the
	// renewed ones. It may also read step and the states that are replaced, and
	// what is handed over. It is nil where there are no such states.
	apply *program.Program
}

// handedPrefix begins the names of what the first part hands to the second.
const handedPrefix = "handed."

// CheckDelay returns an error unless an optimizer's refreshes can take effect that many
// updates late. Refreshes must be further apart than that. And if they renew states that
// updates write, too, the new states must follow from those states without a
// factorization.
func CheckDelay(o sdk.OptimizerProgram, delay int) error {
	if delay == 0 || o.Refresh == nil {
		return nil
	}
	_, err := splitDelayed(o, delay)
	return err
}

// splitDelayed checks a delay, which is not 0, and cuts the refresh program.
func splitDelayed(o sdk.OptimizerProgram, delay int) (*split, error) {
	if delay < 0 || delay >= o.Due.Every {
		return nil, fmt.Errorf("a delay of %d updates, but refreshes are due every %d", delay, o.Due.Every)
	}
	return splitRefresh(o)
}

// splitRefresh cuts the refresh program of an optimizer.
func splitRefresh(o sdk.OptimizerProgram) (*split, error) {
	p := o.Refresh
	live := writtenStates(o)
	c := &cutter{p: p, live: live, carried: map[string]bool{}, needed: make([]bool, p.NumValues())}
	for _, output := range p.Outputs {
		if live[output.Name] {
			c.carried[output.Name] = true
			c.needed[output.Value] = true
		}
	}
	c.later = c.depends(func(name string) bool { return c.carried[name] })
	if err := c.check(); err != nil {
		return nil, err
	}
	c.cut()
	s := &split{}
	var err error
	if s.background, err = c.background(); err == nil && len(c.carried) > 0 {
		s.apply, err = c.apply()
	}
	return s, err
}

// writtenStates lists the states that updates change, by the names of their inputs and
// outputs.
func writtenStates(o sdk.OptimizerProgram) map[string]bool {
	live := map[string]bool{}
	for _, p := range []*program.Program{o.Update, o.Observe} {
		if p == nil {
			continue
		}
		for _, output := range p.Outputs {
			if strings.HasPrefix(output.Name, sdk.StatePrefix) && int(output.Value) != p.Input(output.Name) {
				live[output.Name] = true
			}
		}
	}
	return live
}

// cutter cuts a program p.
type cutter struct {
	p *program.Program
	// live are the states that updates write, carried those of them that the
	// program renews.
	live, carried map[string]bool
	later         []bool       // the values that depend on a carried state
	needed        []bool       // those that the second part is made of
	handed        []program.ID // those that are handed over
}

// depends marks the values that depend on the chosen inputs.
func (c *cutter) depends(on func(input string) bool) []bool {
	inputs := make([]bool, len(c.p.Inputs))
	for i, input := range c.p.Inputs {
		inputs[i] = on(input.Name)
	}
	return program.Interpret(c.p, inputs, func(_ program.ID, _ *program.Node, args []bool) bool {
		return slices.Contains(args, true)
	})
}

// check refuses what would lose what updates write meanwhile, and what would be
// computed with a factorization after all.
func (c *cutter) check() error {
	for _, output := range c.p.Outputs {
		if !c.carried[output.Name] {
			continue
		}
		own := c.depends(func(name string) bool { return name == output.Name })
		if !own[output.Value] {
			return fmt.Errorf("a refresh replaces the state %s by what does not depend on it, but updates write it, too: "+
				"what they write while the refresh is computed would be lost", stateName(output.Name))
		}
		before := c.p.Needs([]program.Output{output})
		for i, n := range c.p.Nodes {
			id := len(c.p.Inputs) + i
			switch {
			case !before[id] || !c.later[id]:
			case factorizes(n.Op):
				return fmt.Errorf("a refresh renews the state %s by %s of what updates write, too: it cannot begin before it takes effect", stateName(output.Name), n.Op)
			case n.Op == program.OpSortColumns:
				if pairs := float64(n.Type.Size()) * float64(n.Type.Shape[n.Type.Rank()-1]); pairs > mostSorted {
					return fmt.Errorf("a refresh renews the state %s by sorting columns of what updates write, too, on the device, where that compares %.3g pairs: want at most %d",
						stateName(output.Name), pairs, mostSorted)
				}
			}
		}
	}
	return nil
}

// cut finds the values that the second part is made of, and those that are handed
// over for it: what does not depend on a carried state, except that constants are made
// again, and reshapes and broadcasts, which are larger than their operands.
func (c *cutter) cut() {
	varies := c.depends(func(string) bool { return true })
	for i, n := range slices.Backward(c.p.Nodes) {
		id := program.ID(len(c.p.Inputs) + i)
		switch {
		case !c.needed[id]:
			continue
		case !c.later[id] && (varies[id] || factorizes(n.Op)) && n.Op != program.OpReshape && n.Op != program.OpBroadcast:
			c.handed = append(c.handed, id)
			continue
		}
		for _, a := range n.Args {
			c.needed[a] = true
		}
	}
	for i, input := range c.p.Inputs {
		// A state that updates write and the refresh only reads is meant as it was.
		if c.needed[i] && c.live[input.Name] && !c.carried[input.Name] {
			c.handed = append(c.handed, program.ID(i))
		}
	}
	slices.Sort(c.handed)
}

// mostSorted is how many pairs of elements a device may compare to sort: it has them all in memory.
const mostSorted = 1 << 28

// factorizes tells whether a device does not have the operation.
func factorizes(op program.Op) bool {
	info, _ := op.Info()
	return info.Class == program.ClassLinalg && op != program.OpSortColumns
}

func stateName(output string) string { return strings.TrimPrefix(output, sdk.StatePrefix) }

func handedName(i int) string { return fmt.Sprint(handedPrefix, i) }

// background writes the first part, with the inputs that it reads.
func (c *cutter) background() (*program.Program, error) {
	if len(c.carried) == len(c.p.Outputs) && len(c.handed) == 0 {
		return nil, nil
	}
	var wanted []program.Output
	for _, o := range c.p.Outputs {
		if !c.carried[o.Name] {
			wanted = append(wanted, o)
		}
	}
	for i, id := range c.handed {
		wanted = append(wanted, program.Output{Name: handedName(i), Value: id})
	}
	b := program.NewBuilder(c.p.Name)
	marks := c.p.Needs(wanted)
	values := b.Copy(c.p, c.inputs(b, func(id program.ID) bool { return marks[id] }))
	for _, o := range wanted {
		v := values[o.Value]
		switch t := c.p.TypeOf(o.Value); t.DType {
		case program.Float:
		case program.Bool:
			v = v.Convert(program.Float)
		default:
			return nil, fmt.Errorf("what a refresh makes of states that updates write, too, depends on integers (%s) made of others", t)
		}
		b.Output(o.Name, v)
	}
	return b.Build()
}

// apply writes the second part. Its name is the same for all tensors, so that those
// that are alike have one program.
func (c *cutter) apply() (*program.Program, error) {
	b := program.NewBuilder("apply")
	given := c.inputs(b, func(id program.ID) bool { return c.needed[id] && !slices.Contains(c.handed, id) })
	for i, id := range c.handed {
		given[id] = b.Input(handedName(i), program.FloatType(c.p.TypeOf(id).Shape...))
	}
	for _, id := range c.handed {
		if c.p.TypeOf(id).DType == program.Bool {
			given[id] = given[id].Ne(b.Const(0))
		}
	}
	values := b.Copy(c.p, given)
	for _, o := range c.p.Outputs {
		if c.carried[o.Name] {
			b.Output(o.Name, values[o.Value])
		}
	}
	return b.Build()
}

// inputs declares the chosen inputs, by their number among all values.
func (c *cutter) inputs(b *program.Builder, chosen func(program.ID) bool) []program.Value {
	given := make([]program.Value, c.p.NumValues())
	for i, input := range c.p.Inputs {
		if chosen(program.ID(i)) {
			given[i] = b.Input(input.Name, input.Type)
		}
	}
	return given
}
