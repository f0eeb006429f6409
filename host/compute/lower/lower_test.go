package lower_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/internal/testing/randprog"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

func TestFactorizationsAreRefused(t *testing.T) {
	for _, write := range []func(
		x program.Value) program.Value{program.Value.QR, program.Value.EighValues,
		program.Value.EighVectors} {
		p := build(t, func(b *program.Builder) {
			b.Output("y", write(b.Input("x", program.FloatType(3, 3))))
		})
		var refused *lower.UnsupportedError
		if err := lower.Check(p); !errors.As(err, &refused) {
			t.Errorf("Check: %v", err)
		}
		_, err := shared(t).Compile("refused", []engine.Spec{inputSpec("x", 3, 3)},
			func(g *graph.Graph, in []*graph.Node) []*graph.Node {
				return []*graph.Node{lower.Lower(g, p, in)["y"]}
			})
		if !errors.As(err, &refused) || refused.Program != "test" ||
			!strings.Contains(err.Error(), refused.Op.String()) {
			t.Errorf("Compile: %v", err)
		}
	}
}

func TestWrongInputs(t *testing.T) {
	p := build(t, func(b *program.Builder) {
		x := b.Input("x", program.FloatType(2, 3))
		b.Output("y", x.Add(b.Input("n", program.Type{DType: program.Int}).Convert(program.Float)))
	})
	for want, specs := range map[string][]engine.Spec{
		"got 1 inputs, want 2":    {inputSpec("x", 2, 3)},
		`input "x" is float[2,3]`: {inputSpec("x", 3, 2), inputSpec("n")},
		`input "n" is int`:        {inputSpec("x", 2, 3), inputSpec("n")},
	} {
		_, err := shared(t).Compile("wrong", specs, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
			return []*graph.Node{lower.Lower(g, p, in)["y"]}
		})
		if err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), `program "test"`) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
	}
}

// TestLargeRotations compares rotations, of which large ones are split, with the reference
// implementation.
func TestLargeRotations(t *testing.T) {
	for _, block := range []int{256, 512, 4096, 1 << 17} {
		x := normal(uint64(block), 1<<17/block, block)
		p := build(t, func(b *program.Builder) { b.Output("y", b.Input("x", x.Type).Hadamard(block)) })
		want, err := reference.Run32(p, map[string]reference.Tensor{"x": x})
		if err != nil {
			t.Fatal(err)
		}
		compareLowered(t, p, map[string]reference.Tensor{"x": x}, want, 5e-6)
	}
}

func compareLowered(
	t *testing.T, p *program.Program, inputs, want map[string]reference.Tensor, abs float64,
) {
	t.Helper()
	buffers := uploadInputs(t, p, inputs)
	outputs := execute(t, buffers, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
		return lower.Outputs(g, p, in)
	})
	for i, o := range p.Outputs {
		tol := tolerance{}
		if p.TypeOf(o.Value).DType == program.Float {
			tol.abs = abs * max(1, largest(want[o.Name]))
		}
		compare(t, o.Name, tol, download(t, p.TypeOf(o.Value), outputs[i]), want[o.Name], nil)
	}
}

// TestSharedNodes checks that a graph stores constants once, so that the device finds the common
// operations of several programs.
func TestSharedNodes(t *testing.T) {
	p := build(t, quest(64, 4, 128))
	count := func(times int) (nodes int) {
		execute(t, []*engine.Buffer{upload(t, normal(1, 4, 128))},
			func(g *graph.Graph, in []*graph.Node) (out []*graph.Node) {
				for range times {
					out = append(out, lower.Lower(g, p, in)["value"])
				}
				for _, op := range g.Main().Operations {
					if op.Name == "constant" {
						nodes++
					}
				}
				return out
			})
		return nodes
	}
	if once, twice := count(1), count(2); once != twice || once == 0 {
		t.Errorf("%d constants for one lowering, %d for two", once, twice)
	}
}

// TestRandomPrograms compares random programs with the reference implementation in double
// precision. Integers and bools must be equal. Floats have the rounding errors of up to 40
// operations in single precision, 6e-8 each, which operations amplify. The generator keeps values
// below 64 and programs well conditioned: the reference implementation in single precision stays
// within 1e-4 of the largest element. The device's own functions (exp, tanh, sums in another order)
// are allowed twice that.
func TestRandomPrograms(t *testing.T) {
	seeds := testlevel.Sample[uint64](30, 100, 300)
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			options := randprog.Options{Nodes: 10 + int(seed%31), Elements: []int{40, 256, 3000}[seed%3]}
			c := randprog.New(seed, options)
			want, err := reference.Run(c.Program, c.Inputs)
			if err != nil {
				t.Fatal(err)
			}
			got := run(t, c.Program, c.Inputs)
			for _, o := range c.Program.Outputs {
				tol := tolerance{}
				if c.Program.TypeOf(o.Value).DType == program.Float {
					tol.abs = 2e-4 * max(1, largest(want[o.Name]))
				}
				compare(t, o.Name, tol, got[o.Name], want[o.Name], nil)
			}
			if t.Failed() {
				t.Log(c.Program)
			}
		})
	}
}

func largest(x reference.Tensor) float64 {
	most := 0.0
	for _, v := range x.Floats {
		most = max(most, math.Abs(v))
	}
	return most
}

// TestMain fails when a goroutine outlives the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
