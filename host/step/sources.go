package step

import (
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/sdk"
)

// update is a compiled update, or observation, of all rules.
type update struct {
	name  string
	exec  *engine.Executable // nil where all rules are tiled
	tiled *tiles             // nil where none is
	rules []cage.Rule
	// sources are those of the inputs of all rules before the scalars, in order.
	sources []source
	// read are the positions of the trained parameters that the rules of weights read,
	// in order.
	read []int
}

// source tells where an input of an update comes from.
type source struct {
	from  origin
	rule  int // its position
	index int // among the states of the rule, or among the quantized values
	// donated inputs are given away to an update.
	donated bool
}

// origin is a list of buffers that a step has.
type origin int

const (
	fromParams origin = iota
	fromGradients
	fromQuantized
	fromOptimizer
)

// newUpdate lists the inputs of all rules, in the order in which a graph over them
// declares them. An update may be given everything but the quantized values, and but
// the trained parameters that another rule reads.
func (k *Kernels) newUpdate(rules []cage.Rule) *update {
	u := &update{rules: rules}
	at := k.plan.quantized()
	for i, rule := range rules {
		state := 0
		for _, input := range rule.Inputs() {
			s := source{rule: i, donated: true}
			switch {
			case isScalar(input.Name):
				continue
			case input.Name == cage.InputX:
				s.from = fromParams
			case input.Name == cage.InputGradient:
				s.from = fromGradients
			case input.Name == cage.InputQuantized:
				s.from, s.index, s.donated = fromQuantized, slices.Index(at, i), false
			case strings.HasPrefix(input.Name, sdk.TrainedPrefix):
				s.from, s.rule = fromParams, k.trainedIndex(rule.Name, input.Name)
				u.read = append(u.read, s.rule)
			default:
				s.from, s.index = fromOptimizer, state
				state++
			}
			u.sources = append(u.sources, s)
		}
	}
	for i, s := range u.sources {
		if s.from == fromParams && slices.Contains(u.read, s.rule) {
			u.sources[i].donated = false
		}
	}
	slices.Sort(u.read)
	u.read = slices.Compact(u.read)
	return u
}

// trainedIndex is the position of a rule's trained parameter among all tensors.
func (k *Kernels) trainedIndex(rule, input string) int {
	name := TrainedName(rule, strings.TrimPrefix(input, sdk.TrainedPrefix))
	return slices.IndexFunc(k.plan.Rules, func(r cage.Rule) bool { return r.Name == name })
}

// inputs are the buffers that the update reads before the scalars, and which of them
// it may be given.
func (u *update) inputs(s *State, q *quantizedWeights, grads []*engine.Buffer) (in []*engine.Buffer, donate []bool) {
	for _, f := range u.sources {
		donate = append(donate, f.donated)
	}
	return collect(u.sources, values[*engine.Buffer]{s.Params, grads, q.values, s.Optimizer}), donate
}

// values are what a step has for an update, as buffers or as nodes of a graph.
type values[T any] struct {
	params, gradients []T // by rule
	quantized         []T // of the quantized parameters
	optimizer         [][]T
}

// collect returns the inputs of an update before the scalars.
func collect[T any](sources []source, from values[T]) []T {
	var in []T
	for _, f := range sources {
		switch f.from {
		case fromParams:
			in = append(in, from.params[f.rule])
		case fromGradients:
			in = append(in, from.gradients[f.rule])
		case fromQuantized:
			in = append(in, from.quantized[f.index])
		case fromOptimizer:
			in = append(in, from.optimizer[f.rule][f.index])
		}
	}
	return in
}
