package sdk_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
)

// here returns the line number of its caller.
func here() int {
	_, _, line, _ := runtime.Caller(1)
	return line
}

// TestFirstMistake checks mistakes that authors make: the error reports the first one, with its
// line, and not its consequences.
func TestFirstMistake(t *testing.T) {
	var at int
	quantize := func(f func(b *program.Builder, x program.Value,
		site sdk.Site) program.Value) func() error {
		return func() error {
			_, err := sdk.BuildQuantizer(
				quantizer(func(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
					return sdk.Quantized{Value: f(b, x, site)}, nil
				}), weight)
			return err
		}
	}
	update := func(f func(in sdk.UpdateInput) (program.Value, sdk.State)) func() error {
		o := momentum
		o.update = func(_ *program.Builder, in sdk.UpdateInput) (program.Value, sdk.State, error) {
			u, next := f(in)
			return u, next, nil
		}
		return func() error { _, err := sdk.BuildOptimizer(o, matrix); return err }
	}
	for _, c := range []struct {
		name string
		try  func() error
		says string // %d stands for the line number
	}{
		{"the shape after a mistake",
			quantize(func(b *program.Builder, x program.Value, _ sdk.Site) program.Value {
				at = here() + 1
				v := x.Add(b.Zeros(3))
				return v.Scale(float64(v.Shape()[0]))
			}), "add: shapes [2 8] and [3] do not match: ranks must be equal and axes equal or 1 (reshape " +
				"or broadcast one operand) (mistakes_test.go:%d)"},
		{"a division by a size after a mistake",
			quantize(func(_ *program.Builder, x program.Value, _ sdk.Site) program.Value {
				at = here() + 1
				blocks := x.Reshape(4, 5)
				return x.Reshape(16/len(blocks.Shape()), 8)
			}), "reshape: cannot reshape float[2,8] to [4 5]: got 16 elements, want 20 " +
				"(mistakes_test.go:%d)"},
		{"a parameter of another name",
			quantize(func(b *program.Builder, x program.Value, site sdk.Site) program.Value {
				at = here() + 1
				return x.Div(site.Trained["stepp"])
			}), "div: operand 1 is absent: a zero Value, such as that of a wrong map key " +
				"(mistakes_test.go:%d)"},
		{"an operation on it",
			quantize(func(b *program.Builder, x program.Value, site sdk.Site) program.Value {
				at = here() + 1
				return x.Div(site.Trained["stepp"].Abs())
			}), `operation on an absent value: a zero Value, such as that of a wrong map key (mistakes_test.go:%d)`},
		{"its random bits",
			quantize(func(b *program.Builder, x program.Value, site sdk.Site) program.Value {
				at = here() + 1
				return site.Trained["stepp"].StochasticBFloat16(x)
			}), "operation on an absent value: a zero Value, such as that of a wrong map key " +
				"(mistakes_test.go:%d)"},
		{"its bias correction", update(func(in sdk.UpdateInput) (program.Value, sdk.State) {
			at = here() + 1
			return in.Gradient.Div(sdk.BiasCorrection(in.State["mm"], 1)), in.State
		}), "operation on an absent value: a zero Value, such as that of a wrong map key " +
			"(mistakes_test.go:%d)"},
		{"the bias correction of a key", update(func(in sdk.UpdateInput) (program.Value, sdk.State) {
			at = here() + 1
			return in.Gradient.Div(sdk.BiasCorrection(in.Noise, 0.9)), in.State
		}), "(mistakes_test.go:%d)"},
		{"blocks of another tensor",
			quantize(func(_ *program.Builder, x program.Value, _ sdk.Site) program.Value {
				at = here() + 1
				return microscaling.NewBlocks([]int{3, 8}, 4).Split(x)
			}), "(mistakes_test.go:%d)"},
		{"blocks of a scalar",
			quantize(func(_ *program.Builder, x program.Value, _ sdk.Site) program.Value {
				at = here() + 1
				return microscaling.NewBlocks(nil, 4).Split(x)
			}), "panic: runtime error: index out of range [-1] (mistakes_test.go:%d)"},
		{"its shape", quantize(func(b *program.Builder, x program.Value, site sdk.Site) program.Value {
			at = here() + 1
			return b.Zeros(site.Trained["stepp"].Shape()[0])
		}), "panic: runtime error: index out of range [0] with length 0 (mistakes_test.go:%d)"},
		{"a panic without a mistake",
			quantize(func(_ *program.Builder, x program.Value, _ sdk.Site) program.Value {
				at = here() + 1
				return x.Scale(1 / float64(x.Shape()[2]))
			}), "panic: runtime error: index out of range [2] with length 2 (mistakes_test.go:%d)"},
		{"a refusal after a mistake", func() error {
			_, err := sdk.BuildQuantizer(
				quantizer(func(b *program.Builder, x program.Value, _ sdk.Site) (sdk.Quantized, error) {
					at = here() + 1
					if rows := x.Add(b.Zeros(3)).Shape(); len(rows) != 2 {
						return sdk.Quantized{}, sdk.Refuse("only matrices are quantized")
					}
					return sdk.Quantized{}, nil
				}), weight)
			return err
		}, "(mistakes_test.go:%d)"},
		{"no value", func() error {
			_, err := sdk.BuildQuantizer(forgetful{}, weight)
			at = forgetfulQuantize
			return err
		},
			`output "value": is absent: a zero Value, such as that of a wrong map key (returned by Quantize at mistakes_test.go:%d)`},
		{"a value of another shape", func() error {
			_, err := sdk.BuildQuantizer(forgetful{wrong: true}, weight)
			at = forgetfulQuantize
			return err
		}, "output value is float[2,1], want the type of x, float[2,8] (returned by Quantize at " +
			"mistakes_test.go:%d)"},
		{"nothing unpacked", func() error {
			_, err := sdk.BuildQuantizer(forgetful{packs: true}, weight)
			at = forgetfulUnpack
			return err
		},
			"(returned by Unpack at mistakes_test.go:%d)"},
		{"a state of another name", update(func(in sdk.UpdateInput) (program.Value, sdk.State) {
			at = here() + 1
			m := in.State["mm"].Scale(0.9).Add(in.Gradient)
			return m, sdk.State{"m": m, "v": in.State["v"]}
		}), "operation on an absent value: a zero Value, such as that of a wrong map key " +
			"(mistakes_test.go:%d)"},
		{"a state that is not returned", update(func(in sdk.UpdateInput) (program.Value, sdk.State) {
			return in.Gradient, sdk.State{"m": in.State["n"], "v": in.State["v"]}
		}), `update: program "o/update/layers.0.wq": output "state.m": is absent`},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.try()
			says := c.says
			if strings.Contains(says, "%d") {
				says = fmt.Sprintf(says, at)
			}
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("got %v\nwant %s", err, says)
			}
			if err != nil && (strings.Contains(err.Error(), "_build.go") ||
				strings.Contains(err.Error(), "signature.go")) {
				t.Errorf("a line of the sdk tells an author nothing: %v", err)
			}
		})
	}
}

// forgetful returns a wrong value or none.
type forgetful struct{ wrong, packs bool }

// The line numbers of its methods, set when they are called.
var forgetfulQuantize, forgetfulUnpack int

func (forgetful) Describe() sdk.Description { return sdk.Description{Name: "forgetful"} }

func (f forgetful) Quantize(
	_ *program.Builder, x program.Value, _ sdk.Site,
) (sdk.Quantized, error) {
	forgetfulQuantize = here() - 3
	switch {
	case f.wrong:
		return sdk.Quantized{Value: x.MaxRow()}, nil
	case f.packs:
		return sdk.Quantized{Value: x, Codes: x, Scale: x}, nil
	}
	return sdk.Quantized{}, nil
}

func (forgetful) Unpack(
	*program.Builder, program.Value, program.Value, sdk.Site,
) (program.Value, error) {
	forgetfulUnpack = here() - 3
	return program.Value{}, nil
}
