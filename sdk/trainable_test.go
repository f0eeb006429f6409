package sdk_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// learned is a Trainable and a Packer whose methods call functions.
type learned struct {
	quantizer
	init   func(b *program.Builder, x program.Value, site sdk.Site) (sdk.State, error)
	unpack func(b *program.Builder, codes, scale program.Value) (program.Value, error)
}

func (l learned) InitTrained(
	b *program.Builder, x program.Value, site sdk.Site,
) (sdk.State, error) {
	return l.init(b, x, site)
}

func (l learned) Unpack(
	b *program.Builder, codes, scale program.Value, _ sdk.Site,
) (program.Value, error) {
	return l.unpack(b, codes, scale)
}

// steps learns a step size for each row and one offset.
var steps = learned{
	quantizer: func(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
		s, offset := site.Trained["step"], site.Trained["offset"]
		codes := x.Sub(offset).Div(s).Round()
		smooth := x.Sub(offset).Div(s)
		return sdk.Quantized{
			Value: codes.Mul(s).Add(offset), Surrogate: smooth.Sub(smooth.Sub(codes).StopGradient()).Mul(s).
				Add(offset), Codes: codes,
			Scale: s.Concatenate(0, offset.Reshape(1, 1)),
		}, nil
	},
	init: func(b *program.Builder, x program.Value, site sdk.Site) (sdk.State, error) {
		return sdk.State{"step": x.Abs().MaxRow().Scale(0.25), "offset": x.SumAll().Scale(1.0 / 16)}, nil
	},
	unpack: func(b *program.Builder, codes, scale program.Value) (program.Value, error) {
		s, offset := scale.Slice([]int{0, 0}, []int{2, 1}, []int{1, 1}),
			scale.Slice([]int{2, 0}, []int{3, 1}, []int{1, 1})
		return codes.Mul(s).Add(offset.Reshape()), nil
	},
}

func names[T any](list []T, name func(T) string) string {
	var out []string
	for _, v := range list {
		out = append(out, name(v))
	}
	return strings.Join(out, " ")
}

func inputNames(p *program.Program) string {
	return names(p.Inputs, func(in program.Input) string { return in.Name })
}

func outputNames(p *program.Program) string {
	return names(p.Outputs, func(o program.Output) string { return o.Name })
}

func TestTrainedParameters(t *testing.T) {
	q := steps
	q.init = func(b *program.Builder, x program.Value, site sdk.Site) (sdk.State, error) {
		if len(site.Trained) != 0 {
			t.Error("there are trained parameters before they are initialised")
		}
		return steps.init(b, x, site)
	}
	stale := weight
	stale.Trained = sdk.State{"step": {}}
	out, err := sdk.BuildQuantizer(q, stale)
	if err != nil {
		t.Fatal(err)
	}
	want := []spec.Tensor{{Name: "offset"}, {Name: "step", Shape: []int{2, 1}}}
	if diff := cmp.Diff(want, out.Trained); diff != "" {
		t.Error(diff)
	}
	if got := inputNames(out.Program); got != "x trained.offset trained.step" {
		t.Errorf("the program takes %s", got)
	}
	if in, o := inputNames(out.Init), outputNames(out.Init); in != "x" ||
		o != "trained.offset trained.step" {
		t.Errorf("init takes %s and returns %s", in, o)
	}
	if in, o := inputNames(out.Unpack), outputNames(out.Unpack); in != "codes scale" || o != "value" {
		t.Errorf("unpack takes %s and returns %s", in, o)
	}
	var all []string
	for name := range out.Programs() {
		all = append(all, name)
	}
	if !slices.Equal(all, []string{"quantize", "init", "unpack"}) {
		t.Errorf("programs %v", all)
	}
}

// TestPackedValue checks that quantize takes what init returns, and that unpack restores the value
// from its codes and scale.
func TestPackedValue(t *testing.T) {
	out, err := sdk.BuildQuantizer(steps, weight)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]float64, 16)
	for i := range data {
		data[i] = math.Sin(float64(i * i))
	}
	run := func(p *program.Program, from ...map[string]reference.Tensor) map[string]reference.Tensor {
		t.Helper()
		in := map[string]reference.Tensor{}
		for _, m := range from {
			for _, i := range p.Inputs {
				if v, ok := m[i.Name]; ok {
					in[i.Name] = v
				}
			}
		}
		results, err := reference.Run(p, in)
		if err != nil {
			t.Fatal(err)
		}
		return results
	}
	x := map[string]reference.Tensor{"x": reference.Floats(data, 2, 8)}
	quantized := run(out.Program, x, run(out.Init, x))
	if diff := cmp.Diff(quantized["value"].Floats,
		run(out.Unpack, quantized)["value"].Floats); diff != "" {
		t.Errorf("unpacked (-value +unpacked):\n%s", diff)
	}
}

func TestSiteWithoutTrainedParameters(t *testing.T) {
	q := learned{
		quantizer: func(_ *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
			s := x.Abs().MaxRow()
			return sdk.Quantized{Value: x.Div(s).Round().Mul(s), Codes: x.Div(s).Round(), Scale: s,
				Homogeneous: len(site.Trained) == 0}, nil
		},
		init: func(*program.Builder, program.Value, sdk.Site) (sdk.State, error) { return nil, nil },
		unpack: func(_ *program.Builder, codes, scale program.Value) (program.Value, error) {
			return codes.Mul(scale), nil
		},
	}
	out, err := sdk.BuildQuantizer(q, weight)
	if err != nil {
		t.Fatal(err)
	}
	if out.Init != nil || len(out.Trained) != 0 || !out.Homogeneous || inputNames(out.Program) != "x" {
		t.Errorf("got %+v", out)
	}
}

func TestBuildTrainableRefuses(t *testing.T) {
	quantized := func(change func(x program.Value, q *sdk.Quantized)) func(*learned) {
		return func(l *learned) {
			l.quantizer = func(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
				q, err := steps.quantizer(b, x, site)
				change(x, &q)
				return q, err
			}
		}
	}
	initial := func(f func(b *program.Builder, x program.Value) (sdk.State, error)) func(*learned) {
		return func(l *learned) {
			l.init = func(b *program.Builder, x program.Value, _ sdk.Site) (sdk.State, error) {
				return f(b, x)
			}
		}
	}
	unpacked := func(f func(codes, scale program.Value) (program.Value, error)) func(*learned) {
		return func(l *learned) {
			l.unpack = func(_ *program.Builder, codes, scale program.Value) (program.Value, error) {
				return f(codes, scale)
			}
		}
	}
	cases := []struct {
		name   string
		change func(*learned)
		says   string
	}{
		{"an error in InitTrained",
			initial(func(*program.Builder, program.Value) (sdk.State, error) {
				return nil, errors.New("no sample")
			}), "no sample"},
		{"a panic in InitTrained",
			initial(func(*program.Builder, program.Value) (sdk.State, error) { panic("oh") }),
			"panic: oh (trainable_test.go:"},
		{"a mistake without parameters",
			initial(func(_ *program.Builder, x program.Value) (sdk.State, error) {
				x.MatMul(x)
				return nil, nil
			}), "(trainable_test.go:"},
		{"an absent parameter",
			initial(func(*program.Builder, program.Value) (sdk.State, error) {
				return sdk.State{"step": {}}, nil
			}), `init: program "q/init/layers.0.wq": output "trained.step": is absent`},
		{"a parameter of integers", initial(func(b *program.Builder, x program.Value) (sdk.State, error) {
			return sdk.State{"step": x.MaxRow(), "offset": b.ConstInt(0)}, nil
		}), "init: output trained.offset is int, want float"},
		{"a parameter without a name",
			initial(func(b *program.Builder, x program.Value) (sdk.State, error) {
				return sdk.State{"step": x.MaxRow(), "offset": b.Const(0), "": b.Const(0)}, nil
			}), "trained parameter 0 has no name"},
		{"a factorization", initial(func(b *program.Builder, x program.Value) (sdk.State, error) {
			return sdk.State{"step": x.Transpose(1, 0).QR().Transpose(1, 0).MaxRow(), "offset": b.Const(0)},
				nil
		}), "init: qr: factorizations are for refresh programs only"},
		{"homogeneous", quantized(func(_ program.Value, q *sdk.Quantized) { q.Homogeneous = true }),
			"cannot hold with the trained parameter offset"},
		{"no surrogate", quantized(
			func(_ program.Value, q *sdk.Quantized) {
				q.Surrogate = program.Value{}
			}), "trained.offset gets no gradient from the surrogate"},
		{"a surrogate that compares only", quantized(func(x program.Value, q *sdk.Quantized) {
			q.Surrogate = q.Value.Lt(x).Select(x, x.Scale(2)).Add(q.Value.StopGradient())
		}), "trained.offset gets no gradient from the surrogate"},
		{"no codes", quantized(func(_ program.Value, q *sdk.Quantized) { q.Codes = program.Value{} }),
			"can unpack needs the output codes"},
		{"no scale", quantized(func(_ program.Value, q *sdk.Quantized) { q.Scale = program.Value{} }),
			"can unpack needs the output scale"},
		{"an error in Unpack", unpacked(func(program.Value, program.Value) (program.Value, error) {
			return program.Value{}, errors.New("no table")
		}), "no table"},
		{"nothing unpacked",
			unpacked(func(program.Value, program.Value) (program.Value, error) {
				return program.Value{}, nil
			}), `unpack: program "q/unpack/layers.0.wq": output "value": is absent`},
		{"another shape unpacked",
			unpacked(func(_, scale program.Value) (program.Value, error) { return scale, nil }),
			"unpack: output value is float[3,1], want float[2,8]"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			q := steps
			c.change(&q)
			out, err := sdk.BuildQuantizer(q, weight)
			checkSiteError(t, err, sdk.KindQuantizer, c.says)
			if out.Program != nil || out.Init != nil {
				t.Error("a program came with the error")
			}
		})
	}
}

// TestQuantizerFactorizes checks that quantizers may not factorize.
func TestQuantizerFactorizes(t *testing.T) {
	q := quantizer(func(_ *program.Builder, x program.Value, _ sdk.Site) (sdk.Quantized, error) {
		return sdk.Quantized{Value: x.Transpose(1, 0).QR().Transpose(1, 0)}, nil
	})
	_, err := sdk.BuildQuantizer(q, weight)
	checkSiteError(t, err, sdk.KindQuantizer, "qr: factorizations are for refresh programs only")
}

// change returns a copy of a list with f applied to its first tensor.
func change(list []spec.Tensor, f func(*spec.Tensor)) []spec.Tensor {
	list = slices.Clone(list)
	f(&list[0])
	return list
}

func TestTrainableCheck(t *testing.T) {
	good, err := sdk.BuildQuantizer(steps, weight)
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name   string
		change func(*spec.Quantizer)
		says   string
	}{
		{"no init", func(q *spec.Quantizer) { q.Init = nil },
			"the init program is required exactly when there are trained parameters"},
		{"no list", func(q *spec.Quantizer) { q.Trained = nil },
			"the quantizer's program must take x: float[2,8]"},
		{"out of order", func(q *spec.Quantizer) {
			q.Trained = []spec.Tensor{q.Trained[1], q.Trained[0]}
		}, "trained parameters are not sorted by name"},
		{"another shape", func(q *spec.Quantizer) {
			q.Trained = []spec.Tensor{q.Trained[0], {Name: "step", Shape: []int{2}}}
		}, "must take x: float[2,8], trained.offset: float, trained.step: float[2]"},
		{"a maximum", func(q *spec.Quantizer) {
			q.Trained = change(q.Trained, func(s *spec.Tensor) { s.Maximum = true })
		}, "trained parameter offset is a maximum"},
		{"shared under a name of two lines", func(q *spec.Quantizer) {
			q.Trained = change(q.Trained, func(s *spec.Tensor) { s.Shared = "a\nb" })
		}, `trained parameter offset is shared as "a\nb": the name contains '\n'`},
		{"unpack for init", func(q *spec.Quantizer) { q.Init = q.Unpack },
			"the init program must take x: float[2,8]"},
		{"init for unpack", func(q *spec.Quantizer) { q.Unpack = q.Init },
			"the unpack program must take codes: float[2,8], scale: float[3,1]"},
	}
	for _, c := range cases {
		q := good
		c.change(&q)
		if err := q.Check(weight.Shape); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.says)
		}
	}
}
