package reference_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// TestPartsAndFolds checks the values and shapes of slices and reductions that are composed of
// other operations.
func TestPartsAndFolds(t *testing.T) {
	x := reference.Floats([]float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 2, 2, 3)
	for name, c := range map[string]struct {
		of    func(x program.Value) program.Value
		shape []int
		want  []float64
	}{
		"the last column": {func(x program.Value) program.Value { return x.Column(2) }, []int{2, 2, 1},
			[]float64{3, 6, 9, 12}},
		"the first column": {func(x program.Value) program.Value { return x.Column(0) }, []int{2, 2, 1},
			[]float64{1, 4, 7, 10}},
		"of the last axis": {func(x program.Value) program.Value { return x.At(2, 1, 3) },
			[]int{2, 2, 2}, []float64{2, 3, 5, 6, 8, 9, 11, 12}},
		"of the middle axis": {func(x program.Value) program.Value { return x.At(1, 1, 2) },
			[]int{2, 1, 3}, []float64{4, 5, 6, 10, 11, 12}},
		"of the first axis": {func(x program.Value) program.Value { return x.At(0, 0, 1) },
			[]int{1, 2, 3}, []float64{1, 2, 3, 4, 5, 6}},
		"sums of rows":  {program.Value.SumRow, []int{2, 2, 1}, []float64{6, 15, 24, 33}},
		"means of rows": {program.Value.MeanRow, []int{2, 2, 1}, []float64{2, 5, 8, 11}},
		"the sum":       {program.Value.SumAll, nil, []float64{78}},
		"the mean":      {program.Value.MeanAll, nil, []float64{6.5}},
		"sums of columns": {func(x program.Value) program.Value { return x.ReduceSum(0, 1) }, []int{3},
			[]float64{22, 26, 30}},
	} {
		b := program.NewBuilder("p")
		b.Output("y", c.of(b.Input("x", x.Type)))
		p, err := b.Build()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		out, err := reference.Run(p, map[string]reference.Tensor{"x": x})
		if err != nil {
			t.Fatal(err)
		}
		if y := out["y"]; !slices.Equal(y.Floats, c.want) || !slices.Equal(y.Type.Shape, c.shape) {
			t.Errorf("%s: got %v %v, want %v %v", name, y.Type.Shape, y.Floats, c.shape, c.want)
		}
	}
}

// TestPartsThatDoNotExist checks that the error names the axis or the slice that does not exist.
func TestPartsThatDoNotExist(t *testing.T) {
	for says, of := range map[string]func(x program.Value) program.Value{
		"at: axis 2 does not exist: the rank is 2": func(x program.Value) program.Value {
			return x.At(2, 0, 1)
		},
		"axis 1: start 3, limit 4": func(x program.Value) program.Value {
			return x.Column(3)
		},
		"axis 1: start 2, limit 2": func(x program.Value) program.Value {
			return x.At(1, 2, 2)
		},
		"at: axis -1 does not exist": func(x program.Value) program.Value {
			return x.MeanAll().Column(0)
		},
		"is absent": func(x program.Value) program.Value {
			return x.Add(program.Value{}).Column(1)
		},
	} {
		b := program.NewBuilder("p")
		b.Output("y", of(b.Input("x", program.FloatType(2, 3))))
		if _, err := b.Build(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
}
