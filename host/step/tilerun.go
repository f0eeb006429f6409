package step

import (
	"context"
	"runtime/pprof"
	"slices"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/engine"
)

// execUpdate runs an update. in are the inputs of all rules, and the result their new
// parameters, their new states, and a vector of each measure.
func (k *Kernels) execUpdate(u *update, in []*engine.Buffer, donate []bool, scalars []float32) ([]*engine.Buffer, error) {
	t := u.tiled
	if t == nil {
		return k.execGraph(u, in, donate, scalars)
	}
	count := len(u.rules)
	for _, r := range u.rules {
		count += len(r.State())
	}
	out := make([]*engine.Buffer, count, count+len(t.measures))
	if len(t.rest) > 0 {
		if err := k.execRest(u, in, donate, scalars, out); err != nil {
			return nil, err
		}
	}
	var err error
	pprof.Do(context.Background(), pprof.Labels(engine.ProfileLabel, u.name), func(context.Context) {
		err = k.execTiles(t, in, donate, scalars, out)
	})
	if err != nil {
		return nil, err
	}
	for _, name := range measured(u.rules) {
		list := t.measures[name]
		b, err := engine.Upload(k.dev, list, len(list))
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

// execGraph runs the graph over its rules' inputs.
func (k *Kernels) execGraph(u *update, in []*engine.Buffer, donate []bool, scalars []float32) ([]*engine.Buffer, error) {
	b, err := engine.Upload(k.dev, scalars, len(scalars))
	if err != nil {
		return nil, err
	}
	return u.exec.Run(append(in, b), append(donate, true))
}

// execRest runs the graph of the rules that are not tiled and puts its results in their
// places.
func (k *Kernels) execRest(u *update, in []*engine.Buffer, donate []bool, scalars []float32, out []*engine.Buffer) error {
	var some []*engine.Buffer
	var given []bool
	for _, s := range u.tiled.rest {
		end := s.first + s.inputs
		some, given = append(some, in[s.first:end]...), append(given, donate[s.first:end]...)
	}
	results, err := k.execGraph(u, some, given, scalars)
	if err != nil {
		return err
	}
	for _, s := range u.tiled.rest {
		out[s.rule], results = results[0], results[1:]
	}
	for _, s := range u.tiled.rest {
		copy(out[s.state:], results[:s.states])
		results = results[s.states:]
	}
	defer engine.FinalizeAll(results...)
	for i, name := range measured(u.rules) {
		if i == len(results) { // all rules with measures are tiled
			break
		}
		vector := results[i]
		values, err := engine.Download[float32](vector)
		if err != nil {
			return err
		}
		for _, s := range u.tiled.rest {
			if s.measure >= 0 {
				u.tiled.measures[name][s.measure], values = values[0], values[1:]
			}
		}
	}
	return nil
}

// execTiles runs the tiled rules. A parameter or state that is given away is replaced in
// its own memory.
func (k *Kernels) execTiles(t *tiles, in []*engine.Buffer, donate []bool, scalars []float32, out []*engine.Buffer) error {
	defer t.forget()
	for i := range t.rules {
		if err := k.bind(t, i, in, donate, scalars, out); err != nil {
			return err
		}
	}
	if err := t.runner.Run(t.calls); err != nil {
		return err
	}
	if err := t.multiplier.Run(t.products); err != nil {
		return err
	}
	return t.giveBack(in)
}

// bind points a call to the memory of its inputs and outputs.
func (k *Kernels) bind(t *tiles, i int, in []*engine.Buffer, donate []bool, scalars []float32, out []*engine.Buffer) (err error) {
	s, call := t.rules[i], &t.memory[i]
	p := call.program
	for j := range p.Inputs {
		if j >= s.inputs {
			at := slices.Index(cage.Scalars, p.Inputs[j].Name)
			call.inputs[j] = scalars[at : at+1]
		} else if call.inputs[j], err = engine.Data[float32](in[s.first+j]); err != nil {
			return err
		}
	}
	for j, o := range p.Outputs {
		place := s.rule
		switch {
		case t.measures[o.Name] != nil:
			call.outputs[j] = t.measures[o.Name][s.measure : s.measure+1]
			continue
		case j > 0: // after x, the states in order
			place = s.state + j - 1
		}
		at := s.first + p.Input(o.Name)
		if out[place], err = k.replacement(in[at], donate[at]); err != nil {
			return err
		}
		if call.outputs[j], err = engine.Data[float32](out[place]); err != nil {
			return err
		}
	}
	return nil
}

// replacement is the memory of what replaces b: that of b if it is given away.
func (k *Kernels) replacement(b *engine.Buffer, given bool) (*engine.Buffer, error) {
	if given {
		return engine.Take(b)
	}
	data, err := engine.Data[float32](b)
	if err != nil {
		return nil, err
	}
	return engine.Upload(k.dev, data, b.Shape().Dimensions...)
}

// forget drops the memory of a step.
func (t *tiles) forget() {
	for i := range t.memory {
		clear(t.memory[i].inputs)
		clear(t.memory[i].outputs)
	}
}
