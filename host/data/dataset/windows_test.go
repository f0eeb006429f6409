package dataset

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/internal/testing/testfile"
)

func TestEpochOrderGolden(t *testing.T) {
	var cases []struct {
		Seed             uint64
		Epoch            int64
		Context, Windows int
		Offset           int
		Order            []uint32
	}
	testfile.ReadJSON(t, "testdata/sampler.golden.json", &cases)
	for _, c := range cases {
		offset, order := epochOrder(c.Seed, c.Epoch, c.Context, uint32(c.Windows))
		if offset != c.Offset {
			t.Errorf("seed %d epoch %d: offset %d, want %d", c.Seed, c.Epoch, offset, c.Offset)
		}
		if diff := cmp.Diff(c.Order, order); diff != "" {
			t.Errorf("seed %d epoch %d (-want +got):\n%s", c.Seed, c.Epoch, diff)
		}
	}
}

func newWindows(t testing.TB, f *File, config WindowsConfig) *Windows {
	t.Helper()
	s, err := NewWindows(f, config)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestEachWindowOncePerEpoch checks that a window occurs at most once per epoch, that the windows
// leave no gaps unless some are dropped, and that no batch exceeds the file.
func TestEachWindowOncePerEpoch(t *testing.T) {
	for _, size := range []struct{ tokens, context, batch int }{
		{1000, 10, 4}, {1009, 10, 4}, {64, 1, 3}, {513, 64, 7}, {1024, 64, 15}, {1087, 64, 1},
	} {
		f := writeTokens(t, wideInfo, counting(size.tokens, 1<<20))
		s := newWindows(t, f, WindowsConfig{Context: size.context, Batch: size.batch, Seed: 11})
		dst := make([]int32, s.BatchLen())
		windows := size.tokens/size.context - 1
		if want := int64(windows / size.batch); s.batches != want {
			t.Fatalf("%+v: %d batches, want %d", size, s.batches, want)
		}
		offsets := map[int32]bool{}
		for epoch := range int64(40) {
			seen := map[int32]bool{}
			for i := range s.batches {
				if err := s.At(epoch*s.batches+i, dst); err != nil {
					t.Fatalf("%+v: %v", size, err)
				}
				for row := range slices.Chunk(dst, size.context+1) {
					checkRun(t, row)
					if seen[row[0]] {
						t.Fatalf("%+v, epoch %d: window at %d twice", size, epoch, row[0])
					}
					seen[row[0]] = true
					offsets[row[0]%int32(size.context)] = true
				}
			}
			if len(seen) != windows/size.batch*size.batch {
				t.Errorf("%+v, epoch %d: %d windows", size, epoch, len(seen))
			}
			if len(seen) == windows {
				begins := slices.Sorted(maps.Keys(seen))
				for i, begin := range begins {
					if begin != begins[0]+int32(i*size.context) {
						t.Fatalf("windows begin at %v, want steps of %d", begins, size.context)
					}
				}
			}
		}
		if size.context > 1 && len(offsets) < 2 {
			t.Errorf("%+v: every epoch begins at the same offset", size)
		}
	}
}

// checkRun checks that the ids of a window are consecutive.
func checkRun(t *testing.T, row []int32) {
	t.Helper()
	for i, id := range row {
		if id != row[0]+int32(i) {
			t.Fatalf("window %v is not consecutive", row)
		}
	}
}

// TestBatchesInAnyOrder checks that batches do not depend on the order of reading.
func TestBatchesInAnyOrder(t *testing.T) {
	f := writeTokens(t, wideInfo, counting(1000, 1<<20))
	config := WindowsConfig{Context: 16, Batch: 4, Seed: 3}
	first := newWindows(t, f, config)
	var batches [][]int32
	for i := range int64(60) {
		dst := make([]int32, first.BatchLen())
		if err := first.At(i, dst); err != nil {
			t.Fatal(err)
		}
		batches = append(batches, dst)
	}
	second, dst := newWindows(t, f, config), make([]int32, first.BatchLen())
	for _, i := range []int64{59, 0, 31, 14, 15, 1, 59, 58} {
		if err := second.At(i, dst); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(dst, batches[i]) {
			t.Errorf("batch %d differs", i)
		}
	}
}

func TestSeedsAndEpochsDiffer(t *testing.T) {
	f := writeTokens(t, wideInfo, counting(10000, 1<<20))
	batch := func(seed uint64, epoch int64) []int32 {
		s := newWindows(t, f, WindowsConfig{Context: 16, Batch: 4, Seed: seed})
		dst := make([]int32, s.BatchLen())
		if err := s.At(epoch*s.batches, dst); err != nil {
			t.Fatal(err)
		}
		return dst
	}
	if slices.Equal(batch(1, 0), batch(2, 0)) || slices.Equal(batch(1, 0), batch(1, 1)) {
		t.Error("another seed or epoch gave the same batch")
	}
	if !slices.Equal(batch(1, 1), batch(2, 0)) {
		t.Error("epoch 1 of seed 1 is not epoch 0 of seed 2")
	}
}

func TestWindowsShort(t *testing.T) {
	for tokens, ok := range map[int]bool{0: false, 159: false, 160: true} {
		f := writeTokens(t, wideInfo, counting(tokens, 1<<20))
		s, err := NewWindows(f, WindowsConfig{Context: 32, Batch: 4})
		if ok {
			if err != nil || s.batches != 1 {
				t.Errorf("%d tokens: %v", tokens, err)
			}
			continue
		}
		want := fmt.Sprintf("has %d tokens, want at least 160 for 4 windows", tokens)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestWindowsConfigRefused(t *testing.T) {
	f := writeTokens(t, wideInfo, counting(1000, 1<<20))
	for _, config := range []WindowsConfig{
		{}, {Context: 8}, {Batch: 8}, {Context: -1, Batch: 1},
	} {
		if _, err := NewWindows(f, config); err == nil {
			t.Errorf("%+v was accepted", config)
		}
	}
}

func BenchmarkWindows(b *testing.B) {
	f := writeTokens(b, wideInfo, counting(4<<20, 1000))
	s := newWindows(b, f, WindowsConfig{Context: 512, Batch: 16})
	dst := make([]int32, s.BatchLen())
	b.SetBytes(int64(4 * len(dst)))
	for i := int64(0); b.Loop(); i++ {
		if err := s.At(i, dst); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEpochOrder measures the start of an epoch of a billion tokens.
func BenchmarkEpochOrder(b *testing.B) {
	for b.Loop() {
		epochOrder(1337, 0, 512, 1_953_124)
	}
}

func TestSequential(t *testing.T) {
	for _, test := range []struct {
		tokens, context, batch int
		rows                   []int // of every batch
	}{
		{101, 10, 5, []int{5, 5}},
		{110, 10, 5, []int{5, 5}},
		{111, 10, 5, []int{5, 5, 1}},
		{11, 10, 5, []int{1}},
		{100, 1, 99, []int{99}},
	} {
		f := writeTokens(t, wideInfo, counting(test.tokens, 1<<20))
		s, err := NewSequential(f, test.context, test.batch)
		if err != nil {
			t.Fatal(err)
		}
		if s.Batches() != int64(len(test.rows)) {
			t.Errorf("%+v: %d batches", test, s.Batches())
		}
		next := int32(0)
		windows := 0
		for i, want := range test.rows {
			dst := slices.Repeat([]int32{-1}, s.BatchLen())
			rows, err := s.At(int64(i), dst)
			if err != nil || rows != want {
				t.Fatalf("%+v: batch %d has %d rows, %v", test, i, rows, err)
			}
			width := test.context + 1
			for row := range slices.Chunk(dst[:rows*width], width) {
				if row[0] != next {
					t.Errorf("%+v: window begins at %d, want %d", test, row[0], next)
				}
				checkRun(t, row)
				next = row[len(row)-1]
			}
			for row := range slices.Chunk(dst[rows*width:], width) {
				if !slices.Equal(row, dst[:width]) {
					t.Fatalf("%+v: batch %d: unused row holds %d, the first %d", test, i, row, dst[:width])
				}
			}
			windows += rows
		}
		if int64(windows) != s.windows {
			t.Errorf("%+v: %d windows, s.windows = %d", test, windows, s.windows)
		}
		if left := test.tokens - 1 - int(next); left < 0 || left >= test.context {
			t.Errorf("%+v: %d tokens were left out", test, left)
		}
	}
}

func TestSequentialRefuses(t *testing.T) {
	f := writeTokens(t, wideInfo, counting(10, 1<<20))
	if _, err := NewSequential(f, 10, 1); err == nil ||
		!strings.Contains(err.Error(), "want at least 11 for one window") {
		t.Errorf("short file: %v", err)
	}
	if _, err := NewSequential(f, 0, 1); err == nil {
		t.Error("context 0 was accepted")
	}
}
