package refresh

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
	"github.com/cage-qat/cage/sdk/spec"
)

// split is a refresh program divided into two parts, for a refresh that takes effect some updates
// after the one whose statistics it reads.
//
// Some of the renewed states, such as inverse roots, are written only by refreshes. They have not
// changed since the refresh began, and are simply replaced. Others are also written by updates,
// such as SOAP's momentum, which is expressed in the bases that are renewed. For these the refresh
// is a function that is applied to their latest values when the results are installed.
type split struct {
	// background is the part that does not depend on what updates write in the meantime. It reads
	// step and states at the beginning of the refresh. It returns the states that are replaced and,
	// as floats, the values that are passed to apply. It is nil if there are neither.
	background *program.Program
	// apply maps the states that updates write, at the end of the delay, to the renewed states. It
	// may also read step, the states that are replaced, and the values that are passed on. It is
	// nil if updates write none of the renewed states.
	apply *program.Program
}

// passedPrefix is the prefix for the names of the values that the first part passes to the second,
// also in checkpoints.
const passedPrefix = "handed."

// CheckDelay returns an error if an optimizer's refreshes cannot take effect late by the given
// number of updates, which must be less than the interval between refreshes. If they renew states
// that updates also write, computing these must not need a factorization.
func CheckDelay(o spec.Optimizer, delay int) error {
	if delay == 0 || o.Refresh == nil {
		return nil
	}
	_, err := splitDelayed(o, delay)
	return err
}

// splitDelayed checks a delay, which must not be 0, and splits the refresh program of an optimizer.
func splitDelayed(o spec.Optimizer, delay int) (*split, error) {
	if delay < 0 || delay >= o.Due.Every {
		const format = "a delay of %d updates, but refreshes are due every %d: it must be shorter"
		return nil, fmt.Errorf(format, delay, o.Due.Every)
	}
	// updated holds the states that updates write, by the names of their inputs and outputs.
	updated := map[string]bool{spec.InputGradient: true} // and the gradient, which is another later
	for _, p := range []*program.Program{o.Update, o.Observe} {
		if p == nil {
			continue
		}
		for _, output := range p.Outputs {
			changes := int(output.Value) != p.Input(output.Name)
			if strings.HasPrefix(output.Name, spec.StatePrefix) && changes {
				updated[output.Name] = true
			}
		}
	}
	p := o.Refresh
	c := &splitter{
		p: p, updated: updated, applied: map[string]bool{}, second: make([]bool, p.NumValues()),
	}
	for _, output := range p.Outputs {
		if updated[output.Name] {
			c.applied[output.Name] = true
			c.second[output.Value] = true
		}
	}
	c.late = c.depends(func(name string) bool { return c.applied[name] })
	if err := c.check(); err != nil {
		return nil, err
	}
	c.cut()
	s := &split{}
	var err error
	if s.background, err = c.background(); err == nil && len(c.applied) > 0 {
		s.apply, err = c.apply()
	}
	return s, err
}

type splitter struct {
	p *program.Program
	// updated are the states that updates write; applied are those of them that the program renews.
	updated, applied map[string]bool
	late             []bool       // the values that depend on an applied state
	second           []bool       // the values of the second part
	passed           []program.ID // the values that are passed on
}

// depends marks the values that depend on the inputs for which on returns true.
func (c *splitter) depends(on func(input string) bool) []bool {
	return transform.Depends(c.p, func(i int) bool { return on(c.p.Inputs[i].Name) })
}

// check returns an error if the program would discard what updates write in the meantime, or if its
// second part has a factorization or sorts too many columns.
func (c *splitter) check() error {
	for _, output := range c.p.Outputs {
		if !c.applied[output.Name] {
			continue
		}
		own := c.depends(func(name string) bool { return name == output.Name })
		if !own[output.Value] {
			return fmt.Errorf("a refresh replaces the state %s without reading it, but updates also "+
				"write it: what they write while the refresh is computed would be lost", stateName(output.Name))
		}
		before := transform.Needs(c.p, []program.Output{output})
		for i, n := range c.p.Nodes {
			id := len(c.p.Inputs) + i
			switch {
			case !before[id] || !c.late[id]:
			case factorizes(n.Op):
				return fmt.Errorf("a refresh renews the state %s by %s of values that updates write, too: "+
					"it cannot begin before it takes effect", stateName(output.Name), n.Op)
			case n.Op == program.OpSortColumns:
				pairs := float64(n.Type.Size()) * float64(n.Type.Shape[n.Type.Rank()-1])
				if pairs > maxSorted {
					return fmt.Errorf("a refresh renews the state %s by sorting columns of values that updates "+
						"write, too. It is sorted on the device, which compares %.3g pairs: at most %d are allowed",
						stateName(output.Name), pairs, maxSorted)
				}
			}
		}
	}
	return nil
}

// cut determines the values of the second part and the values that are passed on. A value that the
// second part reads and that depends on no applied state is passed on. Constants, reshapes and
// broadcasts are computed again instead.
func (c *splitter) cut() {
	varies := c.depends(func(string) bool { return true })
	for i, n := range slices.Backward(c.p.Nodes) {
		id := program.ID(len(c.p.Inputs) + i)
		switch {
		case !c.second[id]:
			continue
		case !c.late[id] && (varies[id] || factorizes(n.Op)) &&
			n.Op != program.OpReshape && n.Op != program.OpBroadcast:
			c.passed = append(c.passed, id)
			continue
		}
		for _, a := range n.Args {
			c.second[a] = true
		}
	}
	for i, input := range c.p.Inputs {
		// If updates write a state that the refresh only reads, its initial value is passed on.
		if c.second[i] && c.updated[input.Name] && !c.applied[input.Name] {
			c.passed = append(c.passed, program.ID(i))
		}
	}
	slices.Sort(c.passed)
}

// maxSorted is the maximum number of pairs that a device may compare to sort columns, because it
// stores all of them.
const maxSorted = 1 << 28

// factorizes reports whether the operation is a factorization, which devices do not support.
func factorizes(op program.Op) bool {
	info, _ := op.Info()
	return info.Class == program.ClassLinalg && op != program.OpSortColumns
}

func stateName(output string) string { return strings.TrimPrefix(output, spec.StatePrefix) }

func passedName(i int) string { return fmt.Sprint(passedPrefix, i) }

// background returns the program of the first part, with the inputs that it reads.
func (c *splitter) background() (*program.Program, error) {
	if len(c.applied) == len(c.p.Outputs) && len(c.passed) == 0 {
		return nil, nil
	}
	outputs := slices.DeleteFunc(slices.Clone(c.p.Outputs),
		func(o program.Output) bool { return c.applied[o.Name] })
	for i, id := range c.passed {
		outputs = append(outputs, program.Output{Name: passedName(i), Value: id})
	}
	b := program.NewBuilder(c.p.Name)
	needed := transform.Needs(c.p, outputs)
	given := transform.Inputs(b, c.p, func(id program.ID) bool { return needed[id] })
	values := transform.Copy(b, c.p, given)
	for _, o := range outputs {
		v := values[o.Value]
		switch t := c.p.TypeOf(o.Value); t.DType {
		case program.Float:
		case program.Bool:
			v = v.Convert(program.Float)
		default:
			return nil, fmt.Errorf("new values of states that updates also write depend on integers "+
				"(%s) that are computed from other states", t)
		}
		b.Output(o.Name, v)
	}
	return b.Build()
}

// apply returns the program of the second part. Its name is the same for all tensors, so that equal
// programs are compiled only once.
func (c *splitter) apply() (*program.Program, error) {
	b := program.NewBuilder("apply")
	given := transform.Inputs(b, c.p, func(id program.ID) bool {
		return c.second[id] && !slices.Contains(c.passed, id)
	})
	for i, id := range c.passed {
		given[id] = b.Input(passedName(i), program.FloatType(c.p.TypeOf(id).Shape...))
	}
	for _, id := range c.passed {
		if c.p.TypeOf(id).DType == program.Bool {
			given[id] = given[id].Ne(b.Const(0))
		}
	}
	values := transform.Copy(b, c.p, given)
	for _, o := range c.p.Outputs {
		if c.applied[o.Name] {
			b.Output(o.Name, values[o.Value])
		}
	}
	return b.Build()
}
