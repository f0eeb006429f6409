package sdktest

import (
	"fmt"
	"math"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program/transform"
	"github.com/cage-qat/cage/sdk/spec"
)

// This file has checks of what optimizers should leave to others: the decay of weights, which is
// the host's, the names of tensors, which say nothing of what they are, and counting from anything
// but 1.

// equalGradients is the number of updates with one gradient.
const equalGradients = 6

// checkCorrection makes updates with one gradient. Averages that start at zero and are corrected
// for it then give one direction, from the first update on. An optimizer that gives it only when
// the step is counted from another number corrects for one update too many, or too few.
func (o *optimizerRun) checkCorrection(t *trial, s *tensorAnswer) {
	if !s.readsStep() {
		return
	}
	t.announce()
	if s.steady(t, 0) {
		return
	}
	for _, shift := range []int{-1, 1} {
		if s.steady(t, shift) {
			t.failf(s.example, "with equal gradients the directions would be equal if the first update were number %d: the step counts from 1, and so does the bias correction β^t", 1+shift)
			return
		}
	}
	t.notef("with equal gradients the directions are not equal")
}

// readsStep reports whether the direction depends on the number of the step.
func (s *tensorAnswer) readsStep() bool {
	if s.Opaque {
		return true // for all that is known
	}
	i := s.Update.Input(spec.InputStep)
	return i >= 0 && transform.Needs(s.Update, s.Update.Outputs)[i]
}

// steady reports whether updates with one gradient have one direction, when steps are counted from
// 1 + shift.
func (s *tensorAnswer) steady(t *trial, shift int) bool {
	r := s.train(t, Oracle{})
	r.stepShift = shift
	g := normal(41, s.shape...)
	var first []float64
	for range equalGradients {
		u, err := r.step(r.x, g)
		if err != nil {
			return false // a factorization of what no training gives
		}
		if first == nil {
			first = u
		}
		for i, v := range u {
			if !(math.Abs(v-first[i]) <= 1e-6*largest(first)) {
				return false
			}
		}
	}
	return largest(first) > 0
}

func (o *optimizerRun) checkDecay(t *trial) {
	if o.space.singles[0].claims(sdk.ClaimOwnDecay) {
		t.skipf("own_decay is claimed")
		return
	}
	o.byDefault(func(_ *trial, s *tensorAnswer) {
		t.announce()
		r := s.train(t, Oracle{})
		for range 3 {
			u := r.update(r.x, make([]float64, s.size()))
			factor, ok := proportion(u, r.x)
			if !ok {
				continue
			}
			message := fmt.Sprintf("without a gradient, the direction of update %d is %.3g·x: weight decay is the host's; if it is meant, %s", r.updates, factor, claim(sdk.ClaimOwnDecay))
			if len(s.settings) == 0 {
				t.failf(s.example, "%s", message)
			} else {
				t.notef("%s", message)
			}
			return
		}
	})(t)
}

// leastDecay is the least part of x that is decay: 10⁵ updates with a rate of 1 take a tenth of x
// away with it. Less is what an optimizer adds to a denominator, or where an estimate of a rate
// begins.
const leastDecay = 1e-6

// proportion reports whether u = c·x with c that is not about 0.
func proportion(u, x []float64) (c float64, ok bool) {
	if c = u[0] / x[0]; math.Abs(c) < leastDecay || math.IsNaN(c) || math.IsInf(c, 0) {
		return 0, false
	}
	for i := range u {
		if math.Abs(u[i]-c*x[i]) > 1e-6*math.Abs(c*x[i]) {
			return 0, false
		}
	}
	return c, true
}

// checkNames asks for tensors that differ in their names alone: the programs must be equal but for
// their own names.
func (o *optimizerRun) checkNames(t *trial) {
	if o.space.singles[0].claims(sdk.ClaimByName) {
		t.skipf("by_name is claimed")
		return
	}
	for _, k := range tensorKinds {
		var first map[string]string
		for _, name := range []string{"layers.0.wq", "layers.11.mlp.down", "x"} {
			out, err := o.programs(o.space.singles[0], k.role, name, k.shape)
			if err != nil || !out.Accepts {
				break // the checks of shapes and of selection report it
			}
			unnamed := map[string]string{}
			for which, p := range out.Programs() {
				other := *p
				other.Name = which
				unnamed[which] = other.Hash()
			}
			if first == nil {
				first = unnamed
			}
			t.announce()
			for which, hash := range unnamed {
				if hash != first[which] {
					t.failf(example{role: string(k.role), shape: k.shape}, "the %s program of %s is another than that of layers.0.wq; if it is meant to depend on names, %s", which, name, claim(sdk.ClaimByName))
					break
				}
			}
		}
	}
}
