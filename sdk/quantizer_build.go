package sdk

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/spec"
)

// BuildQuantizer calls q for one site and returns its checked programs. Errors and panics
// of the author's code are returned as errors that name the site.
func BuildQuantizer(q Quantizer, site Site) (spec.Quantizer, error) {
	site.Product = cmp.Or(site.Product, ProductForward)
	return build(KindQuantizer, site.Name, q.Describe, func(a *authoring) spec.Quantizer {
		if len(site.Shape) == 0 {
			must(Refuse("a scalar cannot be quantized: give the tensor at least one axis"))
		}
		site.Trained, site.State, site.Training = nil, nil, false
		site.Noise, site.SharedNoise = program.Value{}, program.Value{}
		site.Step, site.Steps = program.Value{}, program.Value{}
		site.Activations, site.Weights = Columns{}, Columns{}
		b := &quantizerBuilder{authoring: a, author: q, site: site}
		b.build()
		must(b.out.Check(site.Shape))
		return b.out
	})
}

type quantizerBuilder struct {
	*authoring
	author Quantizer
	site   Site
	out    spec.Quantizer
}

func (q *quantizerBuilder) build() {
	if t, ok := q.author.(Trainable); ok {
		q.out.Trained, q.out.Init =
			q.initial("init", "InitTrained", spec.TrainedPrefix, t.InitTrained)
		for i := range q.out.Trained {
			q.capabilities(&q.out.Trained[i])
		}
	}
	if s, ok := q.author.(Stateful); ok {
		q.out.State, q.out.InitState =
			q.initial("init_state", "InitState", spec.KeptPrefix, s.InitState)
		if m, ok := q.author.(Maximal); ok {
			for i := range q.out.State {
				q.out.State[i].Maximum = m.Maximum(q.out.State[i].Name, q.site)
			}
		}
	}
	weight := q.site.Role == RoleWeight && q.site.Product == ProductForward
	if s, ok := q.author.(Searcher); ok && weight {
		q.searches(s)
	}
	var trained, evaluated Quantized
	var err error
	q.out.Program, trained, err = q.program(true)
	must(err)
	q.out.Evaluate, evaluated, err = q.program(false)
	if err != nil {
		must(fmt.Errorf("for evaluation, without Noise, SharedNoise, Step and Steps: %w", err))
	}
	if q.out.Evaluate.Hash() == q.out.Program.Hash() {
		q.out.Evaluate = nil
	}
	q.out.Homogeneous, q.out.Grid = trained.Homogeneous && evaluated.Homogeneous, evaluated.Grid
	if d, ok := q.author.(Differentiator); ok {
		q.out.Backward = q.backward(d)
	}
	if p, ok := q.author.(Packer); ok {
		packed, err := spec.PackedPorts(q.out.Program)
		must(err)
		unpack := func(b *program.Builder) ([]output, error) {
			codes := b.Input(packed[0].Name, packed[0].Type)
			scale := b.Input(packed[1].Name, packed[1].Type)
			value, err := p.Unpack(b, codes, scale, q.site)
			return []output{{spec.OutputValue, value}}, err
		}
		q.out.Unpack = q.write("unpack", q.site.Name, q.author, "Unpack", nil, unpack)
	}
}

// initial builds the program that computes the initial trained parameters or the initial state,
// and lists the tensors that it computes.
func (q *quantizerBuilder) initial(
	which, method, prefix string, init func(*program.Builder, program.Value, Site) (State, error),
) (list []spec.Tensor, p *program.Program) {
	site, statistics := q.site, spec.ColumnInputs(q.site.Shape)
	p = q.write(which, site.Name, q.author, method, statistics,
		func(b *program.Builder) ([]output, error) {
			x := b.Input(spec.InputX, program.FloatType(site.Shape...))
			declare(b, statistics, &site.Activations.Max, &site.Activations.Mean,
				&site.Weights.Max, &site.Weights.Mean)
			state, err := init(b, x, site)
			list = tensorsOf(state)
			return outputsOf(prefix, state), err
		})
	return list, p
}

func (q *quantizerBuilder) capabilities(t *spec.Tensor) {
	if s, ok := q.author.(Sharer); ok {
		t.Shared = s.Shared(t.Name, q.site)
	}
	c, ok := q.author.(Constrained)
	if !ok {
		return
	}
	at, name := cmp.Or(t.Shared, q.site.Name)+"/"+t.Name, spec.TrainedPrefix+t.Name
	constrain := func(b *program.Builder) ([]output, error) {
		in := b.Input(name, program.FloatType(t.Shape...))
		out, err := c.Constrain(b, t.Name, in, q.site)
		if out == in {
			return nil, err
		}
		return []output{{name, out}}, err
	}
	t.Constrain = q.write("constrain", at, q.author, "Constrain", nil, constrain)
}

// searches sets the state tensors that searches compute, and the interval of the searches.
func (q *quantizerBuilder) searches(s Searcher) {
	list, every, err := s.SearchState(q.site)
	must(err)
	switch {
	case len(list) == 0:
		return
	case len(q.out.State) > 0:
		must(fmt.Errorf("InitState returns the state %s, but SearchState the state %s: "+
			"a quantizer that searches must return all of its state from SearchState",
			q.out.State[0].Name, list[0].Name))
	case every < 1:
		must(fmt.Errorf("SearchState returns an interval of %d steps, want at least 1", every))
	}
	q.out.SearchEvery, q.out.State = every, slices.Clone(list)
	slices.SortFunc(q.out.State, func(x, y StateTensor) int { return strings.Compare(x.Name, y.Name) })
	for i, s := range q.out.State {
		if i > 0 && s.Name == q.out.State[i-1].Name {
			must(fmt.Errorf("SearchState returns %q twice", s.Name))
		}
	}
}

func (q *quantizerBuilder) inputs(b *program.Builder, site *Site) {
	site.Trained = inputState(b, spec.TrainedPrefix, q.out.Trained)
	site.State = inputState(b, spec.KeptPrefix, q.out.State)
}

func stepInputs(b *program.Builder, site *Site) {
	site.Training = true
	declare(b, spec.StepInputs, &site.Noise, &site.SharedNoise, &site.Step, &site.Steps)
}

// program builds the training or the evaluation program of Quantize. Per-step inputs that the
// author does not use are left out.
func (q *quantizerBuilder) program(training bool) (p *program.Program, res Quantized, err error) {
	site := q.site
	b := q.builder(site.Name)
	x := b.Input(spec.InputX, program.FloatType(site.Shape...))
	q.inputs(b, &site)
	if training {
		stepInputs(b, &site)
	}
	res, err = q.author.Quantize(b, x, site)
	if err = cmp.Or(err, b.Err()); err != nil {
		return nil, res, err
	}
	if !res.Surrogate.Valid() {
		res.Surrogate = x
	}
	b.Output(spec.OutputValue, res.Value)
	b.Output(spec.OutputSurrogate, res.Surrogate)
	for _, o := range []output{{spec.OutputCodes, res.Codes}, {spec.OutputScale, res.Scale},
		{spec.OutputMask, res.Mask}} {
		if o.value.Valid() {
			b.Output(o.name, o.value)
		}
	}
	next := 0 // number of outputs of the next state
	switch {
	case training && q.out.SearchEvery > 0 && len(res.Next) > 0:
		err = errors.New("the field Next is set, but searches compute the state: leave Next empty")
	case training && q.out.SearchEvery == 0:
		next = len(q.out.State)
		if err = sameState("the state Next", res.Next, "InitState", q.out.State); err == nil {
			for _, o := range outputsOf(spec.KeptPrefix, res.Next) {
				b.Output(o.name, o.value)
			}
		}
	}
	var whole *program.Program
	if err == nil {
		whole, err = b.Build()
	}
	if err != nil {
		return nil, res, returnedBy(q.author, "Quantize", err)
	}
	at := len(whole.Outputs) - next
	p = onlyOutputs(whole, whole.Name, whole.Outputs[:at], spec.StepInputs)
	if err := spec.CheckOutputs(p, site.Shape); err != nil {
		return nil, res, returnedBy(q.author, "Quantize", err)
	}
	if next > 0 {
		name := q.plugin + "/next/" + site.Name
		q.out.Next = onlyOutputs(whole, name, whole.Outputs[at:], spec.StepInputs)
	}
	return p, res, nil
}

// backward builds the custom backward pass. It returns nil if the site has a surrogate instead.
func (q *quantizerBuilder) backward(author Differentiator) *program.Program {
	return q.write("backward", q.site.Name, author, "Backward", spec.StepInputs, func(
		b *program.Builder,
	) ([]output, error) {
		site, t := q.site, program.FloatType(q.site.Shape...)
		x := b.Input(spec.InputX, t)
		q.inputs(b, &site)
		dy := b.Input(spec.InputDY, t)
		stepInputs(b, &site)
		g, err := author.Backward(b, x, dy, site)
		if err = cmp.Or(err, b.Err()); err != nil || !g.X.Valid() && len(g.Trained) == 0 {
			return nil, err
		}
		if err := sameState("Gradients.Trained", g.Trained, "InitTrained", q.out.Trained); err != nil {
			return nil, returnedBy(author, "Backward", err)
		}
		return append([]output{{autodiff.Prefix + spec.InputX, g.X}},
			outputsOf(autodiff.Prefix+spec.TrainedPrefix, g.Trained)...), nil
	})
}

// sameState returns an error unless got has the names and shapes of list. The error calls got what,
// and says that method returned list.
func sameState(what string, got State, method string, list []spec.Tensor) error {
	for _, s := range list {
		v, ok := got[s.Name]
		if !ok {
			return fmt.Errorf("%s lacks %s, which %s returns", what, s.Name, method)
		}
		if v.Valid() && !slices.Equal(v.Shape(), s.Shape) {
			return fmt.Errorf("%s has %s with the shape %v, but %s returns it with the shape %v",
				what, s.Name, v.Shape(), method, s.Shape)
		}
	}
	for name := range got {
		if !slices.ContainsFunc(list, func(s spec.Tensor) bool { return s.Name == name }) {
			return fmt.Errorf("%s has %s, which %s does not return", what, name, method)
		}
	}
	return nil
}
