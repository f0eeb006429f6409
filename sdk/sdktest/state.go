package sdktest

import (
	"fmt"
	"slices"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// horizon is the number of updates after which every part of the state must have
// had its effect: those of a refresh included, but not more than a test can take.
func (s *tensor) horizon() int {
	const most = 400
	h := 6
	if s.Due.First > 0 {
		h = max(h, s.Due.First+2)
	}
	if s.Due.Every > 0 {
		h = max(h, s.Due.First+s.Due.Next+2*s.Due.Every+2)
	}
	return min(h, most)
}

// checkState changes one state tensor at a time: of the defaults all, of other
// settings those that the defaults do not have.
func (o *optimizerRun) checkState(t *trial) {
	seen := map[string]bool{}
	for i, v := range o.space.core() {
		for _, k := range tensorKinds {
			s, err := o.ask(v, k.role, k.shape...)
			if err != nil || !s.Accepts || o.diverging[settingsText(v.changed)] {
				continue
			}
			for _, tensor := range s.State {
				if i > 0 && seen[tensor.Name] {
					continue
				}
				seen[tensor.Name] = true
				t.tried()
				s.checkChanges(t, sdk.StatePrefix+tensor.Name)
				s.checkEffect(t, sdk.StatePrefix+tensor.Name)
			}
		}
	}
	if t.check.Tried == 0 {
		t.skipf("no state")
	}
}

// checkChanges fails unless updates change the named state tensor.
func (s *tensor) checkChanges(t *trial, name string) {
	x := normal(11, s.shape...)
	p, err := s.start(oracle{}, x)
	if !t.ok(s.place, err) {
		return
	}
	initial := p.state[name].Floats
	for i := range s.horizon() {
		if _, err := p.step(x, normal(uint64(30+i), s.shape...)); !t.ok(s.place, err) {
			return
		}
		if !slices.Equal(initial, p.state[name].Floats) {
			return
		}
	}
	t.failf(s.place, "%s is still what it was at the start after %d updates", name, s.horizon())
}

// checkEffect fails unless another content of the named state tensor changes a later
// direction: put there between two of the first updates or after the first refresh,
// or, for what every refresh renews, between a refresh and the update.
func (s *tensor) checkEffect(t *trial, name string) {
	for _, within := range []bool{false, true} {
		for _, after := range []int{1, 2, s.Due.First, s.Due.First + 1} {
			if effect, err := s.hasEffect(name, after, within); !t.ok(s.place, err) || effect {
				return
			}
		}
	}
	t.failf(s.place, "what %s holds has no effect on %d later directions", name, s.horizon())
}

// hasEffect changes the named state tensor after some updates, or within the next.
func (s *tensor) hasEffect(name string, after int, within bool) (bool, error) {
	x := normal(11, s.shape...)
	p, err := s.start(oracle{}, x)
	for i := 0; i < after && err == nil; i++ {
		_, err = p.step(x, normal(uint64(30+i), s.shape...))
	}
	if err != nil {
		return false, err
	}
	other := p.fork()
	if within {
		other.beforeUpdate = func() { other.alter(name); other.beforeUpdate = nil }
	} else {
		other.alter(name)
	}
	for i := range s.horizon() {
		g := normal(uint64(40+i), s.shape...)
		u, err := p.step(x, g)
		if err != nil {
			return false, err
		}
		v, err := other.step(x, g)
		if err != nil || !slices.Equal(u, v) {
			return true, nil // a state that no run has may also break a factorization
		}
	}
	return false, nil
}

// alter puts other numbers into a state tensor.
func (p *path) alter(name string) {
	v := p.state[name]
	changed := scaled(1.5, v.Floats)
	for i := range changed {
		changed[i] += 0.125 * float64(1+i%3)
	}
	p.state[name] = reference.Floats(changed, v.Type.Shape...)
}

// checkCheckpoint rounds the state of one of two paths to binary32 midway, for the
// settings given and the tensors that models have.
func (o *optimizerRun) checkCheckpoint(t *trial) {
	for _, k := range tensorKinds {
		s, err := o.ask(o.space.singles[0], k.role, k.shape...)
		if err == nil && s.Accepts && len(s.State) > 0 {
			s.checkCheckpoint(t)
		}
	}
	if t.check.Tried == 0 {
		t.skipf("no state")
	}
}

func (s *tensor) checkCheckpoint(t *trial) {
	// Statistics of fewer gradients than a vector has elements are singular, and what
	// preconditioners make of their null space is anybody's.
	const before, after = 8, 5
	x := normal(11, s.shape...)
	p, err := s.start(oracle{}, x)
	for i := 0; i < before && err == nil; i++ {
		_, err = p.step(x, normal(uint64(50+i), s.shape...))
	}
	if !t.ok(s.place, err) {
		return
	}
	saved := p.fork()
	saved.roundState()
	for i := range after {
		g := normal(uint64(60+i), s.shape...)
		want, err := p.step(x, g)
		if !t.ok(s.place, err) {
			return
		}
		got, err := saved.step(x, g)
		if !t.ok(s.place, err) {
			return
		}
		t.within(s.place, fmt.Sprintf("direction of update %d after a checkpoint", p.t), s.shape, got, want,
			func(int) float64 { return 1e-3 * largest(want) })
	}
}

// checkRefresh compares a path with one whose refreshes are left out.
func (o *optimizerRun) checkRefresh(t *trial) {
	o.each(t, []Machine{oracle{}}, func(s *tensor, m Machine) {
		if s.Due.First == 0 || s.Due.First > s.horizon() {
			return
		}
		t.tried()
		t.notef("due at %d, %d, every %d", s.Due.First, s.Due.Next, s.Due.Every)
		x := normal(11, s.shape...)
		p, err := s.start(m, x)
		if !t.ok(s.place, err) {
			return
		}
		without := p.fork()
		without.skipRefresh = true
		for i := range s.horizon() {
			g := normal(uint64(70+i), s.shape...)
			u, err := p.step(x, g)
			if !t.ok(s.place, err) {
				return
			}
			v, err := without.step(x, g)
			if err != nil || !slices.Equal(u, v) {
				return
			}
		}
		t.failf(s.place, "the directions of %d updates are the same with refreshes and without", s.horizon())
	})
	if t.check.Tried == 0 {
		t.skipf("none is due")
	}
}

// checkDevices gives every machine, in each step, the inputs that the oracle has.
func (o *optimizerRun) checkDevices(t *trial) {
	if len(o.machines) == 1 {
		t.skipf("no device")
		return
	}
	const steps = 5
	o.each(t, []Machine{oracle{}}, func(s *tensor, m Machine) {
		c := comparison{t: t, place: s.place, machines: o.machines[1:]}
		x := normal(11, s.shape...)
		p := &path{tensor: s, m: m, state: map[string]reference.Tensor{}, single: true}
		p.trace = func(what string, prog *program.Program, inputs map[string]reference.Tensor) {
			if !factorizes(prog) {
				c.compare(fmt.Sprintf("%s %d: ", what, p.t), prog, inputs)
			}
		}
		err := p.run("init", s.Init, map[string]reference.Tensor{sdk.InputX: reference.Floats(x, s.shape...)}, nil)
		for i := 0; i < steps && err == nil; i++ {
			_, err = p.step(x, normal(uint64(80+i), s.shape...))
		}
		t.ok(s.place, err)
	})
}
