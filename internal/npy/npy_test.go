package npy_test

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/npy"
)

// TestParse reads files that testdata/write.py made.
func TestParse(t *testing.T) {
	for name, want := range map[string][]float64{
		"f2.npy": {0, 0x1p-24, -1.5, 65504, math.Inf(1), math.NaN()},
		"f4.npy": {0, 0x1p-149, -1.5, 65504, math.Inf(-1), math.NaN()},
		"f8.npy": {0, 1e-300, -1.5, 65504, math.Inf(1), math.NaN()},
	} {
		shape, data, err := npy.Parse(read(t, name))
		if err != nil {
			t.Fatal(name, err)
		}
		same := slices.EqualFunc(data, want, func(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) })
		if !slices.Equal(shape, []int{2, 3}) || !same {
			t.Errorf("%s: %v %v, want [2 3] %v", name, shape, data, want)
		}
	}
	if shape, data, err := npy.Parse(read(t, "scalar.npy")); err != nil || len(shape) != 0 || !slices.Equal(data, []float64{3}) {
		t.Errorf("a scalar is %v %v, %v", shape, data, err)
	}
}

func TestRefusals(t *testing.T) {
	whole := string(read(t, "f4.npy"))
	for file, want := range map[string]string{
		"":                             "not a file of numpy.save",
		"text":                         "not a file of numpy.save",
		whole[:40]:                     "ends in its header",
		whole[:len(whole)-1]:           "needs 24 bytes, it has 23",
		string(read(t, "i4.npy")):      "its elements are \"<i4\"",
		string(read(t, "fortran.npy")): "order of Fortran",
		strings.Replace(whole, "(2, 3)", "(0, 3)", 1): "is empty",
	} {
		if _, _, err := npy.Parse([]byte(file)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", file, err, want)
		}
	}
}

func read(t testing.TB, name string) []byte {
	t.Helper()
	file, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// FuzzParse: nothing panics, and the shape has as many elements as there are.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"f2.npy", "f4.npy", "f8.npy", "i4.npy", "scalar.npy", "fortran.npy"} {
		f.Add(read(f, name))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		shape, data, err := npy.Parse(file)
		n := 1
		for _, d := range shape {
			n *= d
		}
		if err == nil && n != len(data) {
			t.Errorf("%v has %d elements", shape, len(data))
		}
	})
}
