package step

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/host/matrix"
	"github.com/cage-qat/cage/host/tile"
	"github.com/cage-qat/cage/sdk/program"
)

// tiles are the rules of an update that run in tiles, in the place of their inputs: on
// the CPU, those whose programs are elementwise, or products of matrices with elementwise
// operations between them. The others are in the graph.
type tiles struct {
	runner *tile.Runner
	calls  []tile.Call
	// multiplier executes the programs with products.
	multiplier *matrix.Runner
	products   []matrix.Call
	rules      []span
	memory     []memory // of the rules in order
	rest       []span   // rules in the graph
	// measures are those of all rules that have them, in order.
	measures map[string][]float32
	// spent are the inputs that are given away and replaced by nothing, and reclaim an
	// executable that takes them and does nothing: so their memory returns to the
	// device, which would otherwise clear fresh memory for the next step.
	spent   []int
	reclaim *engine.Executable
}

// memory are the tensors of a call.
type memory struct {
	program         *program.Program
	inputs, outputs [][]float32
}

// span says where the tensors of a rule are among those of all rules.
type span struct {
	rule          int
	first, inputs int // among the inputs of the update, without the scalars
	state, states int // among the outputs
	measure       int // among the rules with measures, -1 without
}

// spans are those of all rules.
func (u *update) spans() []span {
	var list []span
	first, state, measure := 0, len(u.rules), 0
	for i, r := range u.rules {
		s := span{rule: i, first: first, inputs: len(r.Inputs()) - len(cage.Scalars), state: state, states: len(r.State()), measure: -1}
		if len(r.Measures()) > 0 {
			s.measure = measure
			measure++
		}
		first, state = first+s.inputs, state+s.states
		list = append(list, s)
	}
	return list
}

// compileUpdate divides the rules between tiles and a graph.
func (k *Kernels) compileUpdate(u *update) error {
	rest := u.spans()
	if k.dev.Kind() == engine.CPU && k.plan.Update == nil {
		var err error
		if u.tiled, err = k.tile(u); err != nil {
			return err
		}
	}
	if u.tiled != nil {
		rest = u.tiled.rest
	}
	if len(rest) == 0 {
		return nil
	}
	rules := make([]cage.Rule, len(rest))
	for i, s := range rest {
		rules[i] = u.rules[s.rule]
	}
	specs, build := k.plan.updateGraph(rules)
	var err error
	u.exec, err = k.dev.Compile(u.name, specs, build)
	return err
}

// tile compiles the rules that it can for tiles; nil if there is none.
func (k *Kernels) tile(u *update) (*tiles, error) {
	t := &tiles{measures: map[string][]float32{}}
	shared := map[string]*matrix.Kernel{}
	for _, s := range u.spans() {
		p, err := u.rules[s.rule].Program()
		if err != nil {
			return nil, err
		}
		var refused *tile.RefusedError
		m, err := k.compileRule(t, p, shared)
		switch {
		case errors.As(err, &refused):
			t.rest = append(t.rest, s)
		case err != nil:
			return nil, err
		default:
			t.rules, t.memory = append(t.rules, s), append(t.memory, m)
		}
		for _, name := range u.rules[s.rule].Measures() {
			t.measures[name] = make([]float32, s.measure+1)
		}
	}
	if len(t.rules) == 0 {
		return nil, nil
	}
	t.runner, t.multiplier = tile.NewRunner(k.dev.Threads()), matrix.NewRunner(k.dev.Threads())
	return t, k.compileReclaim(u, t)
}

// compileRule adds a call of a rule's program, in tiles or else with products. Rules that
// are alike share their products' kernel. Where a form of products was asked for, they
// are in the graph.
func (k *Kernels) compileRule(t *tiles, p *program.Program, shared map[string]*matrix.Kernel) (memory, error) {
	m := memory{p, make([][]float32, len(p.Inputs)), make([][]float32, len(p.Outputs))}
	kernel, err := tile.Compile(p)
	if err == nil {
		t.calls = append(t.calls, tile.Call{Kernel: kernel, Inputs: m.inputs, Outputs: m.outputs})
	}
	var refused *tile.RefusedError
	if !errors.As(err, &refused) || k.plan.Stacking != ByDevice {
		return m, err
	}
	key := fingerprint(p)
	product := shared[key]
	if product == nil {
		if product, err = matrix.Compile(p); err != nil {
			return m, err
		}
		shared[key] = product
	}
	t.products = append(t.products, matrix.Call{Kernel: product, Inputs: m.inputs, Outputs: m.outputs})
	return m, nil
}

// compileReclaim finds what tiles are given and do not replace, the gradients.
func (k *Kernels) compileReclaim(u *update, t *tiles) error {
	shapes := k.plan.tensorSpecs()
	var specs []engine.Spec
	for _, s := range t.rules {
		for at := s.first; at < s.first+s.inputs; at++ {
			if u.sources[at].from == fromGradients && u.sources[at].donated {
				t.spent = append(t.spent, at)
				specs = append(specs, shapes[s.rule])
			}
		}
	}
	name := fmt.Sprintf("memory of %s, %d", u.name, len(k.updates)) // of each update its own
	var err error
	t.reclaim, err = k.once(name, func() ([]engine.Spec, engine.BuildFunc) {
		return specs, func(g *graph.Graph, _ []*graph.Node) []*graph.Node {
			return []*graph.Node{engine.Constant(g, []float32{0})}
		}
	})
	return err
}

// giveBack returns the memory of what is spent.
func (t *tiles) giveBack(in []*engine.Buffer) error {
	spent := pick(in, t.spent)
	out, err := t.reclaim.Run(spent, slices.Repeat([]bool{true}, len(spent)))
	return errors.Join(err, engine.FinalizeAll(out...))
}
