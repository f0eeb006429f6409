package export

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/model/gguf"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/halffloat"
	"github.com/cage-qat/cage/internal/testing/testfile"
	"github.com/cage-qat/cage/internal/vfs"
	"github.com/cage-qat/cage/sdk"
)

// TestGolden compares packed codes with those of compressed-tensors 0.20.
func TestGolden(t *testing.T) {
	var golden struct {
		Cases []struct {
			Bits         int
			Codes, Words [][]int32
		}
		FP4 struct {
			Codes [][]int32
			Bytes [][]int
		}
	}
	testfile.ReadJSON(t, "testdata/golden/packing.json", &golden)
	packed := 0
	for _, c := range golden.Cases {
		if c.Bits != 4 && c.Bits != 8 { // readers disagree about these
			continue
		}
		packed++
		if got := packWords(slices.Concat(c.Codes...), len(c.Codes[0]), c.Bits,
			-1<<(c.Bits-1)); !slices.Equal(got, slices.Concat(c.Words...)) {
			t.Errorf("%d bits: %v, want %v", c.Bits, got, c.Words)
		}
	}
	if packed != 2 || len(golden.FP4.Codes) == 0 {
		t.Fatalf("%d cases of integers, %d of E2M1", packed, len(golden.FP4.Codes))
	}
	for i, codes := range golden.FP4.Codes {
		got := packE2M1(codes)
		for j, b := range got {
			if int(b) != golden.FP4.Bytes[i][j] {
				t.Errorf("byte %d is %d, want %d", j, b, golden.FP4.Bytes[i][j])
			}
		}
		if len(got) != len(golden.FP4.Bytes[i]) {
			t.Errorf("%d bytes", len(got))
		}
	}
}

// TestE4M3 compares the numbers with their definition: multiples of 2^−9 up to 15·2^−9, then eight
// for each exponent.
func TestE4M3(t *testing.T) {
	if last := e4m3Numbers[len(e4m3Numbers)-1]; last != 448 {
		t.Errorf("the largest number is %v", last)
	}
	want := float32(0)
	for code, v := range e4m3Numbers {
		if v != want {
			t.Errorf("code %d is %v, want %v", code, v, want)
		}
		step := float32(0x1p-9)
		for range code/8 - 1 {
			step *= 2
		}
		want += step
	}
}

// TestF16 checks the rounding of all half floats, of the numbers halfway between two, and of their
// neighbours.
func TestF16(t *testing.T) {
	at := func(bits int) float32 {
		v, err := gguf.Decode(gguf.F16, []byte{byte(bits), byte(bits >> 8)})
		if err != nil {
			t.Fatal(err)
		}
		return v[0]
	}
	for bits := range 0x7c00 {
		v := at(bits)
		if got := halffloat.ToHalf(v); !isHalf(v, false) || int(got) != bits ||
			halffloat.ToHalf(-v) != got|0x8000 {
			t.Fatalf("%v: bits %#x (%v), want %#x", v, got, isHalf(v, false), bits)
		}
		if bits == 0x7bff {
			break
		}
		middle := (v + at(bits+1)) / 2
		even := bits + bits%2
		below, above := math.Nextafter32(middle, 0), math.Nextafter32(middle, 1e9)
		if isHalf(middle, false) || int(halffloat.ToHalf(middle)) != even ||
			int(halffloat.ToHalf(below)) != bits || int(halffloat.ToHalf(above)) != bits+1 {
			t.Fatalf("around %v: %#x %#x %#x, want %#x %#x %#x", middle, halffloat.ToHalf(below),
				halffloat.ToHalf(middle), halffloat.ToHalf(above), bits, even, bits+1)
		}
	}
	for v, want := range map[float32]uint16{65519: 0x7bff, 65520: 0x7c00, -1e9: 0xfc00,
		float32(math.Inf(1)): 0x7c00, 0x1p-25: 0, 0x1.8p-25: 1} {
		if got := halffloat.ToHalf(v); got != want {
			t.Errorf("%v has the bits %#x, want %#x", v, got, want)
		}
	}
	for _, v := range []float32{65505, float32(math.NaN()), float32(math.Inf(1)), 1 + 0x1p-11,
		0x1p-25} {
		if isHalf(v, false) {
			t.Errorf("%v is taken for a half float", v)
		}
	}
	if got := halffloat.ToHalf(float32(math.NaN())); got&0x7c00 != 0x7c00 || got&0x3ff == 0 {
		t.Errorf("NaN has the bits %#x", got)
	}
}

func TestBF16(t *testing.T) {
	for bits, want := range map[uint32]uint16{
		0x3f800000: 0x3f80, 0x3f808000: 0x3f80, 0x3f808001: 0x3f81, 0x3f818000: 0x3f82,
		0xbf817fff: 0xbf81, 0x7f7fffff: 0x7f80, 0x7f800001: 0x7fc0,
	} {
		v := math.Float32frombits(bits)
		if got := halffloat.ToBFloat16(v); got != want {
			t.Errorf("%#x becomes %#x, want %#x", bits, got, want)
		}
		if ok := holds(floatBF16, []float32{v}); ok != (bits&0xffff == 0) {
			t.Errorf("%#x is exact: %v", bits, ok)
		}
	}
}

func TestE8M0(t *testing.T) {
	for e := -127; e <= 127; e++ {
		if got, err := codeE8M0(float32(math.Ldexp(1, e))); err != nil || int(got) != e+127 {
			t.Errorf("2^%d has the code %d (%v)", e, got, err)
		}
	}
	for _, v := range []float32{0, -1, 3, 0x1p-128, float32(math.Inf(1)), float32(math.NaN())} {
		if _, err := codeE8M0(v); err == nil {
			t.Errorf("%v has a code", v)
		}
	}
}

// TestZeroPoints compares codes and zero points of an asymmetric matrix with those that
// compressed-tensors has packed.
func TestZeroPoints(t *testing.T) {
	dir := vfs.At("../../model/huggingface/testdata/packed/compressed")
	packed, err := safetensors.Open(dir.Join("model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	read, err := huggingface.OpenTensors(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	floats := func(from huggingface.Tensors, name string) ([]float32, []int) {
		tensor, err := from.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		values, err := safetensors.Floats(tensor)
		if err != nil {
			t.Fatal(err)
		}
		return values, tensor.Shape
	}
	value, dims := floats(read, "minmax.weight")
	scales, shape := floats(packed, "minmax.weight_scale")
	g, err := NewGrid(&Quantized{Value: value, Scale: scales, ScaleShape: shape,
		Grid: sdk.ZeroPoints(15, 16)}, dims)
	if err != nil {
		t.Fatal(err)
	}
	s, err := schemeOf(g, typeInt4)
	if err != nil || s.weights()["symmetric"] != false {
		t.Fatalf("%+v, %v: want an asymmetric type", s, err)
	}
	for _, got := range packIntegers("minmax.weight", dims[0], dims[1], s,
		func() (*Grid, error) { return g, nil }) {
		want, err := packed.Tensor(got.Name)
		if err != nil {
			t.Fatal(err)
		}
		a, err := got.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		b, err := want.Bytes()
		if err != nil || got.DType == want.DType && !bytes.Equal(a, b) ||
			!slices.Equal(got.Shape, want.Shape) {
			t.Errorf("%s: %v, shape %v, or other bytes: %x, want %v, %x", got.Name, err, got.Shape, a,
				want.Shape, b)
		}
	}
	if _, err := schemeOf(g, typeMXFP4); err == nil {
		t.Error("zero points in MXFP4")
	}
}
