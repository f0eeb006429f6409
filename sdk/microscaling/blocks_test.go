package microscaling_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// count returns a tensor of the given shape with the values 1, 2, 3, …
func count(shape ...int) reference.Tensor {
	n := 1
	for _, d := range shape {
		n *= d
	}
	data := make([]float64, n)
	for i := range data {
		data[i] = float64(i + 1)
	}
	return reference.Floats(data, shape...)
}

// TestBlocks checks splitting rows of several lengths into blocks of 4.
func TestBlocks(t *testing.T) {
	for _, shape := range [][]int{{8}, {1}, {3, 4}, {3, 6}, {2, 2, 9}} {
		t.Run(fmt.Sprint(shape), func(t *testing.T) {
			x := count(shape...)
			blocks := microscaling.NewBlocks(shape, 4)
			split := apply(t, x, blocks.Split)[0]
			row, last := shape[len(shape)-1], len(shape)-1
			n := (row + 3) / 4
			if want := append(slices.Clone(shape[:last]), n, 4); !slices.Equal(split.Type.Shape, want) {
				t.Fatalf("split has the shape %v, want %v", split.Type.Shape, want)
			}
			for i, v := range split.Floats {
				want := 0.0
				if at := i % (4 * n); at < row {
					want = x.Floats[i/(4*n)*row+at]
				}
				if v != want {
					t.Errorf("split: %v at %d, want %v", v, i, want)
				}
			}
			joined := apply(t, x,
				func(v program.Value) program.Value { return blocks.Join(blocks.Split(v)) })[0]
			if !slices.Equal(joined.Floats, x.Floats) || !slices.Equal(joined.Type.Shape, shape) {
				t.Errorf("joined again: %v, want %v", joined, x)
			}
			spread := apply(t, x,
				func(v program.Value) program.Value { return blocks.Spread(blocks.Split(v).MaxRow()) })[0]
			for i, v := range spread.Floats {
				end := min(i%row/4*4+4, row) - 1
				if want := x.Floats[i/row*row+end]; v != want {
					t.Errorf("spread: %v at %d, want the maximum of its block, %v", v, i, want)
				}
			}
		})
	}
}

func TestNewRotation(t *testing.T) {
	for _, test := range []struct {
		setting string
		row     int
		want    microscaling.Rotation
		err     string
	}{
		{"none", 7, 1, ""},
		{"1", 7, 1, ""},
		{"32", 96, 32, ""},
		{"64", 96, 0, "the largest that do have 32"},
		{"12", 96, 0, "want none or a power of two"},
		{"0", 96, 0, "want none or a power of two"},
		{"-2", 96, 0, "want none or a power of two"},
		{"", 96, 0, "want none or a power of two"},
	} {
		got, err := microscaling.NewRotation(test.setting, test.row)
		if got != test.want || (err == nil) != (test.err == "") || err != nil &&
			!strings.Contains(err.Error(), test.err) {
			t.Errorf("%q for rows of %d: %v, %v, want %v, %q", test.setting, test.row, got, err, test.want,
				test.err)
		}
	}
}

// TestRotation checks that a rotation is its own inverse, and that size 1 changes nothing.
func TestRotation(t *testing.T) {
	x := count(2, 8)
	once := apply(t, x, microscaling.Rotation(4).Apply)[0]
	if want := []float64{5, -1, -2, 0}; !slices.Equal(once.Floats[:4], want) {
		t.Errorf("H·(1, 2, 3, 4) = %v, want %v", once.Floats[:4], want)
	}
	twice := apply(t, once, microscaling.Rotation(4).Apply)[0]
	same := apply(t, x, microscaling.Rotation(1).Apply)[0]
	if !slices.Equal(twice.Floats, x.Floats) || !slices.Equal(same.Floats, x.Floats) {
		t.Errorf("rotated twice %v, by 1 %v, want %v", twice, same, x)
	}
}
