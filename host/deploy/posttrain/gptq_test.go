package posttrain_test

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/deploy/posttrain"
	"github.com/cage-qat/cage/internal/testing/golden"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

type options struct {
	posttrain.Settings
	Rescale posttrain.Rescale
}

// quantized returns a matrix quantized by GPTQ. It changes neither its arguments w nor h.
func quantized(
	t *testing.T, w []float64, h *posttrain.Hessian, g *posttrain.Grid, o options,
) ([]float64, *posttrain.Result) {
	t.Helper()
	w = slices.Clone(w)
	result, err := posttrain.Round(t.Context(), w, clone(h), g, o.Settings, o.Rescale)
	if err != nil {
		t.Fatal(err)
	}
	return w, result
}

func TestGolden(t *testing.T) {
	golden.Load(t, "testdata/gptq.json").Run(t, func(t *testing.T, c golden.Case) {
		w, x := c.Inputs.Array("w"), c.Inputs.Array("x")
		rows, columns, bits := w.Shape[0], w.Shape[1], c.Params.Int("bits")
		group := c.Params.Int("group")
		o := options{Settings: posttrain.Settings{Damping: c.Params.Float("damp"),
			ActivationOrder: c.Params.Bool("act_order")}}
		g := full(w.Data, columns, columns, bits)
		if group > 0 {
			g = full(w.Data, columns, group, bits)
			o.Rescale = current(g, bits)
		}
		h := hessian(x.Data, columns)
		got, result := quantized(t, w.Data, h, g, o)
		c.Expected.Close("q", got)
		c.Expected.Close("output_error",
			[]float64{math.Sqrt(outputError(h, x.Shape[0], difference(w.Data, got)))})
		rtn := full(w.Data, columns, columns, bits).Nearest(w.Data)
		c.Expected.Close("rtn", rtn)
		c.Expected.Close("rtn_output_error",
			[]float64{math.Sqrt(outputError(h, x.Shape[0], difference(w.Data, rtn)))})
		if len(got) != rows*columns || result.Damping != o.Damping {
			t.Errorf("%d numbers, damping %v", len(got), result.Damping)
		}
	})
}

// definition computes GPTQ by its definition: each column corrects all later ones and is then
// eliminated from the inverse of the matrix: see equation 3 of the paper.
func definition(w []float64, h *posttrain.Hessian, g *posttrain.Grid, o options) []float64 {
	n := g.Columns
	w = slices.Clone(w)
	more := o.Damping * trace(h) / float64(n)
	for j := range n {
		h.Data[j*n+j] += more
	}
	inv := invert(h.Data, n)
	for j := range n {
		if o.Rescale != nil && j%g.Group == 0 {
			scales, _ := o.Rescale(j/g.Group, w)
			for i, s := range scales {
				g.Scales[i*g.Groups()+j/g.Group] = s
			}
		}
		for i := range g.Rows {
			one := &posttrain.Grid{Levels: g.Levels, Rows: 1, Columns: 1, Group: 1,
				Scales: g.Scales[i*g.Groups()+j/g.Group:]}
			value := one.Nearest(w[i*n+j : i*n+j+1])
			e := (w[i*n+j] - value[0]) / inv[j*n+j]
			for t := j; t < n; t++ {
				w[i*n+t] -= e * inv[j*n+t]
			}
			w[i*n+j] = value[0]
		}
		for a := j + 1; a < n; a++ { // removes column j from the inverse
			f := inv[a*n+j] / inv[j*n+j]
			for b := j; b < n; b++ {
				inv[a*n+b] -= f * inv[j*n+b]
			}
		}
	}
	return w
}

func trace(h *posttrain.Hessian) float64 {
	sum := 0.0
	for j := range h.Size {
		sum += h.Data[j*h.Size+j]
	}
	return sum
}

// invert inverts a positive definite matrix by Gauss-Jordan elimination.
func invert(m []float64, n int) []float64 {
	m, out := slices.Clone(m), make([]float64, n*n)
	for i := range n {
		out[i*n+i] = 1
	}
	for p := range n {
		d := m[p*n+p]
		for j := range n {
			m[p*n+j] /= d
			out[p*n+j] /= d
		}
		for i := range n {
			f := m[i*n+p]
			if i == p || f == 0 {
				continue
			}
			for j := range n {
				m[i*n+j] -= f * m[p*n+j]
				out[i*n+j] -= f * out[p*n+j]
			}
		}
	}
	return out
}

// TestDefinition checks that blocks, groups and the factor do not change the result.
func TestDefinition(t *testing.T) {
	testlevel.Long(t, "computes the definition in cubic time for each column")
	const rows, columns = 5, 300
	for _, group := range []int{columns, 32, 100, 128} {
		t.Run(fmt.Sprint(group), func(t *testing.T) {
			w, x := problem(uint64(group), rows, columns, 700)
			run := func() (*posttrain.Grid, options) {
				g, o := full(w, columns, group, 4), options{Settings: posttrain.Settings{Damping: 0.01}}
				if group < columns {
					o.Rescale = current(g, 4)
				}
				return g, o
			}
			g, o := run()
			got, _ := quantized(t, w, hessian(x, columns), g, o)
			other, o := run()
			want := definition(w, hessian(x, columns), other, o)
			for k := range want {
				if math.Abs(got[k]-want[k]) > 1e-9*max(1, math.Abs(want[k])) {
					t.Fatalf("element %d of row %d is %v, want %v", k%columns, k/columns, got[k], want[k])
				}
			}
		})
	}
}

// TestBetterThanRounding checks that the outputs change less than with elements rounded
// independently, in both orders of columns.
func TestBetterThanRounding(t *testing.T) {
	const rows, columns = 24, 160
	for seed := range uint64(4) {
		w, x := problem(seed, rows, columns, 400)
		h := hessian(x, columns)
		rounded := full(w, columns, 32, 3).Nearest(w)
		for _, order := range []bool{false, true} {
			g := full(w, columns, 32, 3)
			value, _ := quantized(t, w, h, g,
				options{Settings: posttrain.Settings{Damping: 0.01, ActivationOrder: order}})
			got, than := outputError(h, 400, difference(w, value)),
				outputError(h, 400, difference(w, rounded))
			if !(got < than) {
				t.Errorf("seed %d, order of activations %t: error %v, that of rounding is %v", seed, order, got,
					than)
			}
		}
	}
}

// TestAnyProcessors checks that results do not depend on the number of processors.
func TestAnyProcessors(t *testing.T) {
	const rows, columns = 37, 290
	w, x := problem(9, rows, columns, 300)
	var first []float64
	for _, n := range []int{1, 2, 5} {
		before := runtime.GOMAXPROCS(n)
		value, _ := quantized(t, w, hessian(x, columns), full(w, columns, columns, 4),
			options{Settings: posttrain.Settings{Damping: 0.01}})
		runtime.GOMAXPROCS(before)
		if first == nil {
			first = value
		}
		if !slices.Equal(value, first) {
			t.Errorf("%d processors give other results", n)
		}
	}
}

// TestDeadColumns checks that a column whose inputs are all 0 is counted and rounded as zeros.
func TestDeadColumns(t *testing.T) {
	w := []float64{1, -2, 3, -4, 0.5, 2}
	h := &posttrain.Hessian{Size: 3, Data: []float64{2, 0, 1, 0, 0, 0, 1, 0, 2}}
	for _, order := range []bool{false, true} {
		g := full(w, 3, 3, 4)
		value, result := quantized(t, w, h, g,
			options{Settings: posttrain.Settings{Damping: 0.01, ActivationOrder: order}})
		zeros := g.Nearest(make([]float64, len(w)))
		if result.Dead != 1 || value[1] != zeros[1] || value[4] != zeros[4] {
			t.Errorf("%d dead columns, %v", result.Dead, value)
		}
	}
}

// TestDamping checks that damping is increased if necessary, and is 0 if none helps.
func TestDamping(t *testing.T) {
	const columns = 4
	w := []float64{1, -2, 3, -4}
	flat := hessian(slices.Repeat([]float64{1}, columns), columns) // of rank 1
	for _, c := range []struct {
		name          string
		h             *posttrain.Hessian
		damping, want float64
	}{
		{"enough", flat, 0.01, 0.01},
		{"none", flat, 0, 0},
		{"hopeless", &posttrain.Hessian{Size: 2, Data: []float64{1, 9, 9, 1}}, 0.01, 0},
		{"hopeless, in another order",
			&posttrain.Hessian{Size: 3, Data: []float64{1, 9, 9, 9, 3, 9, 9, 9, 2}}, 0.01, 0},
		{"ten times", &posttrain.Hessian{Size: 2, Data: []float64{1, 1.05, 1.05, 1}}, 0.01, 0.1},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := w[:len(w)/c.h.Size*c.h.Size] // whole rows
			g := full(w, c.h.Size, c.h.Size, 4)
			for _, order := range []bool{false, true} {
				_, result := quantized(t, w, c.h, g,
					options{Settings: posttrain.Settings{Damping: c.damping, ActivationOrder: order}})
				if math.Abs(result.Damping-c.want) > 1e-12 {
					t.Errorf("damping %v, want %v", result.Damping, c.want)
				}
			}
		})
	}
}

func TestRefuses(t *testing.T) {
	w := []float64{1, 2}
	h := &posttrain.Hessian{Size: 2, Data: []float64{1, 0, 0, math.NaN()}}
	if _, err := posttrain.Round(t.Context(), w, h, full(w, 2, 2, 4), posttrain.Settings{},
		nil); err == nil || err.Error() != "the inputs of the layer are NaN or infinite" {
		t.Errorf("NaN: %v", err)
	}
	h = &posttrain.Hessian{Size: 1, Data: []float64{1}}
	if _, err := posttrain.Round(t.Context(), w, h, full(w, 2, 2, 4), posttrain.Settings{},
		nil); err == nil || err.Error() != "got inputs of 1 features for a matrix of 2 columns" {
		t.Errorf("another size: %v", err)
	}
	g := full(w, 2, 1, 4)
	h = hessian([]float64{1, 0, 0, 1}, 2)
	if _, err := posttrain.Round(t.Context(), w, h, g, posttrain.Settings{ActivationOrder: true},
		current(g, 4)); err == nil {
		t.Error("scales of current weights were accepted with the order of activations")
	}
}

func BenchmarkGPTQ(b *testing.B) {
	const rows, columns = 256, 1024
	w, x := problem(1, rows, columns, 1100)
	h := hessian(x, columns)
	for b.Loop() {
		if _, err := posttrain.Round(b.Context(), slices.Clone(w), clone(h), full(w, columns, 128, 4),
			posttrain.Settings{Damping: 0.01}, nil); err != nil {
			b.Fatal(err)
		}
	}
}
