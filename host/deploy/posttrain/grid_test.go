package posttrain_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/deploy/posttrain"
	"github.com/cage-qat/cage/internal/linalg"
	"github.com/cage-qat/cage/sdk/spec"
)

var fourBit = spec.Grid{Format: spec.FormatE2M1}

// e2m1 maps the codes of the four-bit float to their numbers.
var e2m1 = map[int32]float32{0: 0, 1: 0.5, 2: 1, 3: 1.5, 4: 2, 5: 3, 6: 4, 7: 6,
	8: float32(math.Copysign(0, -1)), 9: -0.5, 10: -1, 11: -1.5, 12: -2, 13: -3, 14: -4, 15: -6}

// answer returns random output of a quantizer for rows of columns in groups.
func answer(numbers map[int32]float32, rows, columns, group int, perRow bool) posttrain.Answer {
	rng := rand.New(rand.NewPCG(uint64(columns), uint64(group)))
	var codes []int32
	for c := range numbers {
		codes = append(codes, c)
	}
	slices.Sort(codes)
	a := posttrain.Answer{}
	groups := (columns + group - 1) / group
	for range rows * groups {
		a.Scale = append(a.Scale, rng.Float32()+0.1)
	}
	if !perRow {
		a.Scale = a.Scale[:1]
	}
	for k := range rows * columns {
		s := a.Scale[0]
		if perRow {
			s = a.Scale[k/columns*groups+k%columns/group]
		}
		c := codes[rng.IntN(len(codes))]
		a.Codes, a.Value = append(a.Codes, c), append(a.Value, numbers[c]*s)
	}
	return a
}

func TestNewGrid(t *testing.T) {
	for _, c := range []struct {
		rows, columns, group int
		perRow               bool
	}{{3, 64, 64, true}, {3, 64, 64, false}, {3, 64, 16, true}, {2, 100, 32, true}, {2, 70, 32, true},
		{1, 10, 10, true}, {1, 10, 4, true}} {
		a := answer(e2m1, c.rows, c.columns, c.group, c.perRow)
		declared := fourBit
		if c.group < c.columns {
			declared.Group = c.group
		}
		g, err := posttrain.NewGrid(a, declared, c.rows, c.columns)
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		if g.Group != c.group || len(g.Numbers) != 15 || g.Uniform() {
			t.Errorf("%+v: groups of %d, levels %v", c, g.Group, g.Numbers)
		}
		a.Value[3] += 1e-3
		if _, err := posttrain.NewGrid(a, declared, c.rows, c.columns); err == nil {
			t.Errorf("%+v: a value that is not on the grid was accepted", c)
		}
	}
	a := answer(e2m1, 3, 8, 8, true)
	a.Scale = a.Scale[:2]
	if _, err := posttrain.NewGrid(a, fourBit, 3, 8); err == nil ||
		!strings.Contains(err.Error(), "got 2 scales, but the plugin declares 1 for each of 3 rows") {
		t.Errorf("two scales for three rows: %v", err)
	}
	pairs := posttrain.Answer{Value: []float32{1}, Codes: []int32{0}, Scale: []float32{0, 1}}
	for _, grid := range []spec.Grid{{Format: spec.FormatAffine, Max: 15, Step: 1},
		{Format: spec.FormatInteger, Min: -15, Max: 15, Step: 1, Span: 15}} {
		if _, err := posttrain.NewGrid(pairs, grid, 1, 1); err == nil ||
			!strings.Contains(err.Error(), "groups have a minimum or a zero point") ||
			cage.Numbers(grid) != nil {
			t.Errorf("a grid with minima or zero points: %v", err)
		}
	}
}

func TestNearest(t *testing.T) {
	for _, c := range []struct {
		levels cage.Levels
		in     []float64
		want   []float64
	}{
		{cage.NewLevels(e2m1), []float64{0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 99, -0.25, -5, -2.6},
			[]float64{0, 1, 1, 2, 2, 4, 4, 6, 0, -4, -3}},
		{integers(3), []float64{0.5, 1.5, -0.5, -1.5, -9, 9, 2.4}, []float64{0, 2, 0, -2, -4, 3, 2}},
		{cage.NewLevels(map[int32]float32{-1: -1, 1: 1}), []float64{0, -0.1, 7}, []float64{1, -1, 1}},
	} {
		g := &posttrain.Grid{Levels: c.levels, Rows: 1, Columns: len(c.in), Group: len(c.in),
			Scales: []float64{1}}
		if got := g.Nearest(c.in); !slices.Equal(got, c.want) {
			t.Errorf("%v becomes %v, want %v", c.in, got, c.want)
		}
		g.Scales[0] = 0
		if values := g.Nearest(c.in); slices.ContainsFunc(values,
			func(v float64) bool { return v != 0 }) {
			t.Errorf("with the scale 0: %v", values)
		}
	}
}

// TestRotate checks a rotation by hand, and that rotating inputs and weights keeps the outputs.
func TestRotate(t *testing.T) {
	x := []float64{1, 2, 3, 4}
	if err := linalg.Rotate(x, 4, 4); err != nil || !slices.Equal(x, []float64{5, -1, -2, 0}) {
		t.Errorf("the hand check of the Hadamard transform gives %v, %v", x, err)
	}
	const columns = 24
	w, in := problem(3, 4, columns, 50)
	h := hessian(in, columns)
	want := outputError(h, 50, w)
	if err := h.Rotate(8); err != nil {
		t.Fatal(err)
	}
	rotated := slices.Clone(w)
	if err := linalg.Rotate(rotated, columns, 8); err != nil {
		t.Fatal(err)
	}
	if got := outputError(h, 50, rotated); math.Abs(got-want) > 1e-9*want {
		t.Errorf("‖XWᵀ‖² is %v after a rotation, %v before", got, want)
	}
	for _, block := range []int{0, 3, 16} {
		if err := h.Rotate(block); err == nil {
			t.Errorf("a rotation of blocks of %d in rows of %d was accepted", block, columns)
		}
	}
}
