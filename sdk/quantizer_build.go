package sdk

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

// BuildQuantizer calls q for one site and returns its checked programs. Errors of
// the author's code, panics included, come back as errors that name the site.
func BuildQuantizer(q Quantizer, site Site) (QuantizerProgram, error) {
	return build(KindQuantizer, site.Name, q.Describe, func(name string) (QuantizerProgram, error) {
		return buildQuantizer(q, name, site)
	})
}

// build calls the code of an author. Its errors and panics become a [*SiteError].
func build[T any](kind Kind, site string, describe func() Description, f func(name string) (T, error)) (out T, err error) {
	var name string
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v%s", r, panicSite())
		}
		if err != nil {
			out, err = *new(T), &SiteError{Kind: kind, Plugin: name, Site: site, Err: err}
		}
	}()
	name = describe().Name
	return f(name)
}

// finish builds one of the programs of an answer.
func finish(b *program.Builder, which string) (*program.Program, error) {
	p, err := b.Build()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", which, err)
	}
	return p, nil
}

func buildQuantizer(q Quantizer, name string, site Site) (out QuantizerProgram, err error) {
	site.Trained, site.Training, site.Noise, site.SharedNoise, site.Step = nil, false, program.Value{}, program.Value{}, program.Value{}
	if t, ok := q.(Trainable); ok {
		if out.Init, out.Trained, err = buildTrained(t, name, site); err != nil {
			return out, err
		}
	}
	if err := out.buildPrograms(q, name, site); err != nil {
		return out, err
	}
	if p, ok := q.(Packer); ok {
		if out.Unpack, err = buildUnpack(p, out.Program, name, site); err != nil {
			return out, err
		}
	}
	return out, out.Check(site.Shape)
}

func buildTrained(q Trainable, name string, site Site) (*program.Program, []StateTensor, error) {
	b := program.NewBuilder(name + "/init/" + site.Name)
	state, err := q.InitTrained(b, b.Input(InputX, program.FloatType(site.Shape...)), site)
	if err != nil || len(state) == 0 {
		return nil, nil, cmp.Or(err, b.Err())
	}
	trained := outputState(b, TrainedPrefix, state)
	p, err := finish(b, "init")
	return p, trained, err
}

// buildPrograms builds the programs of training and of evaluation.
func (q *QuantizerProgram) buildPrograms(author Quantizer, name string, site Site) error {
	homogeneous := false
	var err error
	if q.Program, q.Homogeneous, err = q.buildProgram(author, name, site, true); err != nil {
		return err
	}
	q.Evaluate, homogeneous, err = q.buildProgram(author, name, site, false)
	switch {
	case err != nil && slices.ContainsFunc(stepInputs, func(in program.Input) bool { return q.Takes(in.Name) }):
		return fmt.Errorf("for evaluation, where Noise, SharedNoise and Step are absent, as Site.Training says: %w", err)
	case err != nil:
		return fmt.Errorf("for evaluation: %w", err)
	case q.Evaluate.Hash() == q.Program.Hash():
		q.Evaluate = nil
	}
	q.Homogeneous = q.Homogeneous && homogeneous
	return nil
}

// buildProgram builds one of the two programs. Those of the inputs that change from step to step that the author does not use
// are left out.
func (q *QuantizerProgram) buildProgram(author Quantizer, name string, site Site, training bool) (p *program.Program, homogeneous bool, err error) {
	b := program.NewBuilder(name + "/" + site.Name)
	x := b.Input(InputX, program.FloatType(site.Shape...))
	site.Training, site.Trained = training, inputState(b, TrainedPrefix, q.Trained)
	fixed := 1 + len(q.Trained)
	if training {
		for i, v := range []*program.Value{&site.Noise, &site.SharedNoise, &site.Step} {
			*v = b.Input(stepInputs[i].Name, stepInputs[i].Type)
		}
	}
	res, err := author.Quantize(b, x, site)
	if err != nil {
		return nil, false, err
	}
	if !res.Surrogate.Valid() {
		res.Surrogate = x
	}
	b.Output(OutputValue, res.Value)
	b.Output(OutputSurrogate, res.Surrogate)
	optional := []struct {
		name string
		v    program.Value
	}{{OutputCodes, res.Codes}, {OutputScale, res.Scale}, {OutputMask, res.Mask}}
	for _, o := range optional {
		if o.v.Valid() {
			b.Output(o.name, o.v)
		}
	}
	if p, err = b.Build(); err != nil {
		return nil, false, err
	}
	p, err = withoutUnused(p, fixed)
	return p, res.Homogeneous, err
}

// withoutUnused leaves out the inputs that no output needs, except for the first ones.
func withoutUnused(p *program.Program, keep int) (*program.Program, error) {
	needed := p.Needs(p.Outputs)
	from := slices.DeleteFunc(p.Arguments(), func(in program.Output) bool { return int(in.Value) >= keep && !needed[in.Value] })
	if len(from) == len(p.Inputs) {
		return p, nil
	}
	return p.Extract(p.Name, from, p.Outputs)
}

func buildUnpack(q Packer, quantize *program.Program, name string, site Site) (*program.Program, error) {
	packed, err := packedPorts(quantize)
	if err != nil {
		return nil, err
	}
	b := program.NewBuilder(name + "/unpack/" + site.Name)
	codes, scale := b.Input(packed[0].Name, packed[0].Type), b.Input(packed[1].Name, packed[1].Type)
	value, err := q.Unpack(b, codes, scale, site)
	if err != nil {
		return nil, err
	}
	b.Output(OutputValue, value)
	return finish(b, "unpack")
}
