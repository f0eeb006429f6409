package sdktest_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/program/transform"
	"github.com/cage-qat/cage/sdk/sdktest"
	"github.com/cage-qat/cage/sdk/spec"
)

// device is the reference implementation in binary32, with a mistake if change is not nil.
type device struct {
	change func(p *program.Program, out map[string]reference.Tensor)
	err    error
}

func (device) Name() string { return "device" }

func (d device) Run(
	p *program.Program, inputs map[string]reference.Tensor,
) (map[string]reference.Tensor, error) {
	out, err := reference.Run32(p, inputs)
	if err == nil && d.change != nil {
		d.change(p, out)
	}
	return out, errors.Join(err, d.err)
}

// off returns a change by a relative error in the last element of an output.
func off(name string, by float64) func(*program.Program, map[string]reference.Tensor) {
	return func(_ *program.Program, out map[string]reference.Tensor) {
		if v, ok := out[name]; ok && v.Floats != nil {
			v.Floats = slices.Clone(v.Floats)
			v.Floats[len(v.Floats)-1] *= 1 + by
			out[name] = v
		}
	}
}

// TestDevices checks that a correct device passes, and that an error larger than rounding is found
// in any output.
func TestDevices(t *testing.T) {
	flip := func(_ *program.Program, out map[string]reference.Tensor) {
		if v, ok := out[spec.OutputCodes]; ok && v.Ints != nil {
			v.Ints = slices.Clone(v.Ints)
			v.Ints[0]++
			out[spec.OutputCodes] = v
		}
	}
	for _, c := range []struct {
		name  string
		d     device
		fails []string
	}{
		{"right", device{}, nil},
		{"the value is off", device{change: off(spec.OutputValue, 1e-4)}, []string{"devices"}},
		{"a gradient is off", device{change: off("d.x", 1e-4)}, []string{"devices"}},
		{"a code is off", device{change: flip}, []string{"devices", "zeros"}},
		{"it fails", device{err: errors.New("no memory")}, []string{"devices", "deterministic"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			fails(t, sdktest.SomeOfQuantizer(goodPacked(), c.fails, sdktest.On(c.d)), c.fails)
		})
	}
	for _, c := range []struct {
		name  string
		o     sdk.Optimizer
		d     device
		fails []string
	}{
		{"right optimizer", whitened{}, device{}, nil},
		{"the direction is off", momentum{}, device{change: off(spec.OutputDirection, 1e-4)},
			[]string{"devices"}},
		{"the state is off", whitened{}, device{change: off(spec.StatePrefix+"l", 1e-4)},
			[]string{"devices"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			fails(t, sdktest.SomeOfOptimizer(c.o, c.fails, sdktest.On(c.d)), c.fails)
		})
	}
}

// TestGoldenOnDevices checks that devices also run the cases of golden files.
func TestGoldenOnDevices(t *testing.T) {
	v, err := sdktest.ParseGolden(caseFile("quantizer", learnedCase))
	if err != nil {
		t.Fatal(err)
	}
	const message = "on device, activation [1 3]: case one: value at [0 2]"
	for want, d := range map[string]device{"": {}, message: {change: off(spec.OutputValue, 1e-4)}} {
		says(t, sdktest.CheckGoldenQuantizer(learned{}, v, sdktest.On(d)), want, 11)
	}
}

// reciprocal is the reference implementation in binary32, but replaces the division by a constant
// by the multiplication by its reciprocal, as XLA does.
type reciprocal struct{ device }

func (reciprocal) Run(
	p *program.Program, inputs map[string]reference.Tensor,
) (map[string]reference.Tensor, error) {
	var args []reference.Tensor
	for _, in := range p.Inputs {
		args = append(args, inputs[in.Name].Single())
	}
	values := transform.Interpret(p, args,
		func(_ program.ID, n *program.Node, args []reference.Tensor) reference.Tensor {
			if by := n.Args; n.Op == program.OpDiv && int(by[1]) >= len(p.Inputs) &&
				p.Nodes[int(by[1])-len(p.Inputs)].Op == program.OpConstant {
				inverse := reference.Float(1 / args[1].Floats[0]).Single()
				n = &program.Node{Op: program.OpMul, Args: by, Type: n.Type}
				args = []reference.Tensor{args[0], inverse}
			}
			out, err := reference.Apply(n, args...)
			if err != nil {
				panic(err)
			}
			return out.Single()
		})
	out := map[string]reference.Tensor{}
	for _, o := range p.Outputs {
		out[o.Name] = values[o.Value]
	}
	return out, nil
}

// TestTiesOnDevice checks that only values halfway between two levels may go either way.
func TestTiesOnDevice(t *testing.T) {
	tied := broken(func(q *rows) {
		q.short = -1
		q.scale = func(_, x program.Value) program.Value {
			return x.Abs().MaxRow().Div(x.Builder().Const(7.5))
		}
	})
	names := []string{"devices"}
	fails(t, sdktest.SomeOfQuantizer(tied, names, sdktest.On(reciprocal{})), nil)
	one := device{change: func(_ *program.Program, out map[string]reference.Tensor) {
		if v, ok := out[spec.OutputCodes]; ok {
			v.Ints = slices.Clone(v.Ints)
			i := slices.IndexFunc(v.Ints, func(c int64) bool { return c == 3 })
			v.Ints[max(i, 0)]++
			out[spec.OutputCodes] = v
		}
	}}
	fails(t, sdktest.SomeOfQuantizer(tied, names, sdktest.On(one)), names)
}

// TestLearnedOnDevice checks the initial values of trained parameters.
func TestLearnedOnDevice(t *testing.T) {
	fails(t, sdktest.CheckQuantizer(sdktest.NewQuantizer(learned{}), sdktest.On(device{})), nil)
	wrong := device{change: off(spec.TrainedPrefix+"step", 1e-3)}
	fails(t, sdktest.SomeOfQuantizer(learned{}, []string{"devices"}, sdktest.On(wrong)),
		[]string{"devices"})
}

// TestSettings checks that settings of the caller stay fixed, and that an undeclared one fails the
// check of the description.
func TestSettings(t *testing.T) {
	var asked []int
	watch := broken(func(q *rows) {
		q.refuse = func(site sdk.Site) error {
			asked = append(asked, site.Int("bits"))
			return nil
		}
	})
	r := sdktest.CheckQuantizer(sdktest.NewQuantizer(watch), sdktest.With(map[string]any{"bits": 3}))
	fails(t, r, nil)
	if slices.ContainsFunc(asked, func(bits int) bool { return bits != 3 }) {
		t.Errorf("asked for bits %v", asked)
	}
	fails(t, sdktest.SomeOfQuantizer(good(), []string{"description"},
		sdktest.With(map[string]any{"bit": 3})), []string{"description"})
	asked = nil
	sdktest.SomeOfQuantizer(watch, []string{"parameters"})
	for bits := 2; bits <= 8; bits++ {
		if !slices.Contains(asked, bits) {
			t.Errorf("bits = %d was not asked for", bits)
		}
	}
}

// TestRefusal checks that refusals are distinguished from other errors.
func TestRefusal(t *testing.T) {
	for _, c := range []struct {
		q       sdk.Quantizer
		refused bool
	}{
		{broken(func(q *rows) {
			q.refuse = func(sdk.Site) error { return sdk.Refuse("use 4 bits") }
		}), true},
		{broken(func(q *rows) {
			q.refuse = func(sdk.Site) error { return errors.New("use 4 bits") }
		}), false},
		{broken(func(q *rows) { q.refuse = func(sdk.Site) error { panic("oh") } }), false},
		{broken(func(q *rows) {
			q.scale = func(s, _ program.Value) program.Value { return s.Add(s.Builder().Zeros(5)) }
		}), false},
	} {
		values, err := good().Describe().Resolve(nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = sdktest.NewQuantizer(c.q).
			Programs(sdk.Site{Name: "w", Shape: []int{2, 8}, Values: values})
		if _, refused := errors.AsType[*sdk.Refusal](err); err == nil || refused != c.refused {
			t.Errorf("got %v, a refusal: %v", err, c.refused)
		}
	}
}

type describes struct{ rows }

func (describes) Describe() sdk.Description { panic("who am I") }

func TestPanicInDescribe(t *testing.T) {
	r := sdktest.CheckQuantizer(sdktest.NewQuantizer(describes{}))
	if len(r.Checks) != 1 || r.Checks[0].Status != sdktest.Fail ||
		!strings.Contains(r.Checks[0].Failures[0].Message, "who am I") {
		t.Errorf("got %v", r)
	}
}
