package sdk

import (
	"cmp"
	"fmt"

	"github.com/cage-qat/cage/sdk/program"
)

// BuildQuantizer calls q for one site and returns its checked programs. Errors of
// the author's code, panics included, come back as errors that name the site.
func BuildQuantizer(q Quantizer, site Site) (QuantizerProgram, error) {
	site.Product = cmp.Or(site.Product, ProductForward)
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
	site.Trained = nil
	if t, ok := q.(Trainable); ok {
		if out.Init, out.Trained, err = buildTrained(t, name, site); err != nil {
			return out, err
		}
	}
	if err := out.buildProgram(q, name, site); err != nil {
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

func (q *QuantizerProgram) buildProgram(author Quantizer, name string, site Site) error {
	b := program.NewBuilder(name + "/" + site.Name)
	x := b.Input(InputX, program.FloatType(site.Shape...))
	site.Trained = inputState(b, TrainedPrefix, q.Trained)
	res, err := author.Quantize(b, x, site)
	if err != nil {
		return err
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
	q.Program, err = b.Build()
	q.Homogeneous = res.Homogeneous
	return err
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
