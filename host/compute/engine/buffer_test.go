package engine_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/testing/testdevice"
)

// roundTrip uploads and downloads data of one element type.
func roundTrip[T engine.Element](data []T, dims ...int) func(*testing.T, *engine.Device) {
	return func(t *testing.T, d *engine.Device) {
		b := testdevice.Upload(t, d, data, dims...)
		got := testdevice.Download[T](t, b)
		if len(got) != len(data) {
			t.Fatalf("%d elements came back, want %d", len(got), len(data))
		}
		for i := range data {
			if got[i] != data[i] {
				t.Errorf("element %d is %v, want %v", i, got[i], data[i])
			}
		}
		if err := b.Finalize(); err != nil {
			t.Error(err)
		}
	}
}

func TestUploadDownload(t *testing.T) {
	d := open(t)
	for name, check := range map[string]func(*testing.T, *engine.Device){
		"float32": roundTrip([]float32{1, -2.5, float32(math.Inf(1)), 0, 4, 5}, 2, 3),
		"float64": roundTrip([]float64{math.Pi}, 1),
		"int32":   roundTrip([]int32{-7, math.MaxInt32, math.MinInt32}, 3),
		"uint8":   roundTrip([]uint8{0, 255}, 2),
		"bool":    roundTrip([]bool{true, false, true}, 3),
		"scalar":  roundTrip([]float32{42}),
		"empty":   roundTrip([]float32{}, 0, 4),
	} {
		t.Run(name, func(t *testing.T) { check(t, d) })
	}
}

func TestUploadCopies(t *testing.T) {
	d := open(t)
	data := []float32{1, 2}
	b := testdevice.Upload(t, d, data, 2)
	data[0] = 9
	if got := testdevice.Download[float32](t, b); got[0] != 1 {
		t.Errorf("the buffer follows the slice it was uploaded from: got %v", got)
	}
}

func TestUploadRefusesBadDimensions(t *testing.T) {
	d := open(t)
	for _, dims := range [][]int{{2}, {2, 2}, {-3}, {}} {
		if _, err := engine.Upload(d, []float32{1, 2, 3}, dims...); err == nil {
			t.Errorf("3 elements were accepted for dimensions %v", dims)
		}
	}
	if _, err := engine.Upload(d, []float32{}, 1<<32, 1<<32); err == nil ||
		!strings.Contains(err.Error(), "too many elements") {
		t.Errorf("2⁶⁴ elements: %v", err)
	}
	if _, err := engine.Zeros(d, 2, -1); err == nil || !strings.Contains(err.Error(), "negative") {
		t.Errorf("zeros of a negative dimension: %v", err)
	}
}

func TestDownloadRefusesWrongSlice(t *testing.T) {
	b := testdevice.Upload(t, open(t), []float32{1, 2, 3}, 3)
	if _, err := engine.Download[float64](b); err == nil {
		t.Error("float32 elements were downloaded as float64")
	}
	if err := engine.DownloadInto(b, make([]float32, 2)); err == nil {
		t.Error("3 elements were downloaded into a slice of 2")
	}
}

func TestFinalize(t *testing.T) {
	b := testdevice.Upload(t, open(t), []float32{1}, 1)
	if b.Gone() {
		t.Error("a new buffer is gone")
	}
	if err := engine.FinalizeAll(b, nil, b); err != nil {
		t.Errorf("finalizing twice, and nil: %v", err)
	}
	if _, err := engine.Download[float32](b); !errors.Is(err, engine.ErrBufferGone) {
		t.Errorf("download of a finalized buffer: got error %v, want ErrBufferGone", err)
	}
	if !b.Gone() || !b.Shape().Equal(f32(1)) {
		t.Errorf("gone = %t, shape = %s after Finalize", b.Gone(), b.Shape())
	}
}

// TestData checks that Data returns a CPU buffer's memory.
func TestData(t *testing.T) {
	d := open(t)
	if d.Kind() != device.CPU {
		t.Skip("only the CPU's memory is the host's")
	}
	b := testdevice.Upload(t, d, []float32{1, 2, 3}, 3)
	data, err := engine.Data[float32](b)
	if err != nil {
		t.Fatal(err)
	}
	data[1] = 5
	if _, err := engine.Data[int32](b); err == nil {
		t.Error("floats were taken for integers")
	}
	if got := testdevice.Download[float32](t, b); got[1] != 5 {
		t.Errorf("the buffer has %v", got)
	}
	b.Finalize()
	if _, err := engine.Data[float32](b); !errors.Is(err, engine.ErrBufferGone) {
		t.Errorf("got %v, want that the buffer is gone", err)
	}
}

// TestView checks that View returns the elements on every device, and without a copy on the CPU.
func TestView(t *testing.T) {
	d := open(t)
	b := testdevice.Upload(t, d, []float32{1, 2, 3}, 3)
	view, err := engine.View[float32](b)
	if err != nil || view[1] != 2 || len(view) != 3 {
		t.Fatalf("%v, %v", view, err)
	}
	if d.Kind() == device.CPU {
		data, err := engine.Data[float32](b)
		if err != nil || &data[0] != &view[0] {
			t.Errorf("the CPU's memory was copied, %v", err)
		}
	}
	if err := b.Finalize(); err != nil {
		t.Fatal(err)
	}
	if _, err := engine.View[float32](b); !errors.Is(err, engine.ErrBufferGone) {
		t.Errorf("got %v, want that the buffer is gone", err)
	}
}

func TestFill(t *testing.T) {
	d := open(t)
	b, err := engine.Fill(d, []int{2, 3}, func(values []float32) error {
		for i := range values {
			values[i] = float32(i)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Finalize()
	if got, err := engine.Download[float32](b); err != nil ||
		!slices.Equal(got, []float32{0, 1, 2, 3, 4, 5}) {
		t.Errorf("the elements are %v, %v", got, err)
	}
	refused := errors.New("refused")
	if _, err := engine.Fill(d, []int{4}, func([]float32) error { return refused }); !errors.Is(err,
		refused) {
		t.Errorf("a writer that fails: %v", err)
	}
	// The memory of freed tensors is reused with its old contents.
	for range 3 {
		full, err := engine.Upload(d, []float32{1, 2, 3, 4, 5, 6}, 2, 3)
		if err != nil {
			t.Fatal(err)
		}
		if err := full.Finalize(); err != nil {
			t.Fatal(err)
		}
		zeros, err := engine.Zeros(d, 2, 3)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := engine.Download[float32](zeros); err != nil ||
			!slices.Equal(got, make([]float32, 6)) {
			t.Errorf("zeros are %v, %v", got, err)
		}
		zeros.Finalize()
	}
}
