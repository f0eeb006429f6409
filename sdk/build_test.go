package sdk_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// quantizer and optimizer call functions, so that each test can define its own.
type quantizer func(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error)

func (quantizer) Describe() sdk.Description { return sdk.Description{Name: "q"} }

func (q quantizer) Quantize(
	b *program.Builder, x program.Value, site sdk.Site,
) (sdk.Quantized, error) {
	return q(b, x, site)
}

type optimizer struct {
	init   func(b *program.Builder, x program.Value) (sdk.State, error)
	update func(b *program.Builder, in sdk.UpdateInput) (program.Value, sdk.State, error)
}

func (optimizer) Describe() sdk.Description { return sdk.Description{Name: "o"} }

func (o optimizer) Init(b *program.Builder, x program.Value, _ sdk.Tensor) (sdk.State, error) {
	return o.init(b, x)
}

func (o optimizer) Update(
	b *program.Builder, in sdk.UpdateInput, _ sdk.Tensor,
) (program.Value, sdk.State, error) {
	return o.update(b, in)
}

var (
	weight = sdk.Site{Role: sdk.RoleWeight, Name: "layers.0.wq", Shape: []int{2, 8}}
	matrix = sdk.Tensor{Name: "layers.0.wq", Role: sdk.TensorMatrix, Shape: []int{2, 8}}
)

func TestBuildQuantizer(t *testing.T) {
	q := quantizer(func(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
		if site.RowLen() != 8 {
			t.Errorf("a row has %d elements", site.RowLen())
		}
		s := x.Abs().MaxRow().Scale(1.0 / 7)
		r := x.Div(s)
		return sdk.Quantized{
			Value: r.Round().Mul(s), Codes: r.Round().Convert(program.Int), Scale: s,
			Mask: r.Abs().Le(b.Const(7)), Homogeneous: true,
		}, nil
	})
	out, err := sdk.BuildQuantizer(q, weight)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range out.Program.Outputs {
		names = append(names, o.Name)
	}
	if diff := cmp.Diff([]string{"value", "surrogate", "codes", "scale", "mask"}, names); diff != "" {
		t.Error(diff)
	}
	if id, _ := out.Program.Output(spec.OutputSurrogate); id != 0 {
		t.Errorf("the surrogate is value %d, want x itself", id)
	}
	if out.Program.Name != "q/layers.0.wq" || !out.Homogeneous {
		t.Errorf("got %q, homogeneous %v", out.Program.Name, out.Homogeneous)
	}
	if (sdk.Site{}).RowLen() != 1 {
		t.Error("a scalar has one element")
	}
}

func TestBuildQuantizerRefuses(t *testing.T) {
	answer := func(f func(b *program.Builder, x program.Value) sdk.Quantized) quantizer {
		return func(b *program.Builder, x program.Value, _ sdk.Site) (sdk.Quantized, error) {
			return f(b, x), nil
		}
	}
	cases := []struct {
		name string
		q    sdk.Quantizer
		says string
	}{
		{"an error", quantizer(func(*program.Builder, program.Value, sdk.Site) (sdk.Quantized, error) {
			return sdk.Quantized{}, errors.New("too narrow")
		}), "too narrow"},
		{"a panic", quantizer(func(*program.Builder, program.Value, sdk.Site) (sdk.Quantized, error) {
			panic("no table")
		}), "panic: no table (build_test.go:"},
		{"a nil pointer", quantizer(func(*program.Builder, program.Value, sdk.Site) (sdk.Quantized,
			error) {
			var s *sdk.Site
			return sdk.Quantized{Homogeneous: s.Name == ""}, nil
		}), "nil pointer dereference (build_test.go:"},
		{"an undeclared parameter",
			quantizer(func(_ *program.Builder, x program.Value, s sdk.Site) (sdk.Quantized, error) {
				return sdk.Quantized{Value: x.Scale(s.Float("beta"))}, nil
			}), `reads the parameter "beta", which it does not declare (build_test.go:`},
		{"a panic in Describe", panicsInDescribe{}, "panic: who am I"},
		{"a grid without codes", answer(func(_ *program.Builder, x program.Value) sdk.Quantized {
			return sdk.Quantized{Value: x, Grid: sdk.E2M1(32)}
		}), "a Grid is declared without Codes and Scale"},
		{"nothing", answer(func(*program.Builder, program.Value) sdk.Quantized {
			return sdk.Quantized{}
		}), `output "value": is absent`},
		{"a mistake", answer(func(b *program.Builder, x program.Value) sdk.Quantized {
			return sdk.Quantized{Value: x.Add(b.Zeros(3))}
		}), "shapes [2 8] and [3] do not match"},
		{"another shape", answer(
			func(_ *program.Builder, x program.Value) sdk.Quantized {
				return sdk.Quantized{Value: x.Reshape(16)}
			}), "output value is float[16], want the type of x, float[2,8]"},
		{"another type", answer(func(_ *program.Builder, x program.Value) sdk.Quantized {
			return sdk.Quantized{Value: x.Convert(program.Int)}
		}), "output value is int[2,8]"},
		{"a narrow surrogate", answer(func(_ *program.Builder, x program.Value) sdk.Quantized {
			return sdk.Quantized{Value: x, Surrogate: x.MaxRow()}
		}), "output surrogate is float[2,1]"},
		{"codes of another shape", answer(func(_ *program.Builder, x program.Value) sdk.Quantized {
			return sdk.Quantized{Value: x, Codes: x.Reshape(16)}
		}), "output codes is float[16]"},
		{"codes that are no numbers", answer(func(_ *program.Builder, x program.Value) sdk.Quantized {
			return sdk.Quantized{Value: x, Codes: x.IsFinite()}
		}), "output codes is bool[2,8]"},
		{"a mask of numbers",
			answer(func(_ *program.Builder, x program.Value) sdk.Quantized {
				return sdk.Quantized{Value: x, Mask: x}
			}), "output mask is float[2,8], want bool"},
		{"an integer scale", answer(func(b *program.Builder, x program.Value) sdk.Quantized {
			return sdk.Quantized{Value: x, Scale: b.ConstInt(1)}
		}), "output scale is int, want float"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			out, err := sdk.BuildQuantizer(c.q, weight)
			checkSiteError(t, err, sdk.KindQuantizer, c.says)
			if out.Program != nil {
				t.Error("a program came with the error")
			}
		})
	}
}

// TestScalarSite checks that a site without axes is refused: authors can rely on rows.
func TestScalarSite(t *testing.T) {
	row := quantizer(func(_ *program.Builder, x program.Value, s sdk.Site) (sdk.Quantized, error) {
		return sdk.Quantized{Value: x.Scale(float64(s.Shape[len(s.Shape)-1]))}, nil
	})
	site := weight
	site.Shape = nil
	_, err := sdk.BuildQuantizer(row, site)
	if _, refused := errors.AsType[*sdk.Refusal](err); !refused ||
		!strings.Contains(err.Error(), "at least one axis") {
		t.Errorf("got %v, want a refusal", err)
	}
}

func checkSiteError(t *testing.T, err error, kind sdk.Kind, says string) {
	t.Helper()
	site, ok := errors.AsType[*sdk.SiteError](err)
	if !ok || site.Kind != kind || site.Site != "layers.0.wq" {
		t.Fatalf("got %#v, want a *SiteError of %s for layers.0.wq", err, kind)
	}
	if !strings.Contains(err.Error(), says) {
		t.Errorf("got %v, want %q", err, says)
	}
}

type panicsInDescribe struct{ quantizer }

func (panicsInDescribe) Describe() sdk.Description { panic("who am I") }

func TestQuantizerCheck(t *testing.T) {
	build := func(f func(b *program.Builder)) *program.Program {
		b := program.NewBuilder("p")
		f(b)
		p, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	x := program.FloatType(4)
	cases := []struct {
		name string
		p    *program.Program
		says string
	}{
		{"no program", nil, "the program is absent"},
		{"another input", build(func(b *program.Builder) { b.Output("value", b.Input("w", x)) }),
			"must take x: float[4]"},
		{"two inputs", build(
			func(b *program.Builder) {
				b.Output("value", b.Input("x", x))
				b.Input("y", x)
			}), "must take x: float[4]"},
		{"no surrogate", build(func(b *program.Builder) { b.Output("value", b.Input("x", x)) }),
			"has no output surrogate"},
		{"an unknown output", build(func(b *program.Builder) {
			v := b.Input("x", x)
			for _, name := range []string{"value", "surrogate", "mask_"} {
				b.Output(name, v)
			}
		}), "output mask_ is unknown"},
	}
	for _, c := range cases {
		if err := (spec.Quantizer{Program: c.p}).Check([]int{4}); err == nil ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.says)
		}
	}
}

func TestSiteLimits(t *testing.T) {
	l := spec.SiteLimits([]int{1024, 4096})
	if l.Elements != 64<<22+1<<22 || l.Total != 4096<<22+1<<30 || l.Work != 1024<<34+1<<34 ||
		l.Constants != 1<<22 {
		t.Errorf("got %+v", l)
	}
	huge := spec.SiteLimits([]int{1 << 15, 1 << 15})
	if huge.Elements != program.MaxSize || huge.Work != 1<<50 {
		t.Errorf("got %+v", huge)
	}
	if l := spec.SiteLimits(nil); l.Elements != 64+1<<22 || l.Constants != 4+1<<16 {
		t.Errorf("for a scalar: %+v", l)
	}
}

// TestTensorLimits checks that the limits of every shape are positive, without overflow, and that
// those of optimizers are not below those of quantizers.
func TestTensorLimits(t *testing.T) {
	for _, shape := range [][]int{nil, {1}, {1 << 31}, {1 << 16, 1 << 15}, {1 << 20, 1}} {
		site, tensor := spec.SiteLimits(shape), spec.TensorLimits(shape)
		if site.Elements <= 0 || site.Total <= 0 || site.Work <= 0 || site.Constants <= 0 ||
			site.Linalg || tensor.Linalg {
			t.Errorf("%v: %+v, %+v", shape, site, tensor)
		}
		if tensor.Elements < site.Elements || tensor.Total < site.Total || tensor.Work < site.Work ||
			tensor.Constants < site.Constants ||
			tensor.Elements > program.MaxSize || tensor.Constants > 1<<22 {
			t.Errorf("%v: %+v is below %+v", shape, tensor, site)
		}
	}
}

// TestMain fails when a goroutine outlives the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
