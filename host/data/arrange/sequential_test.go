package arrange

import (
	"errors"
	"slices"
	"testing"
)

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
	var short *ShortError
	if _, err := NewSequential(f, 10, 1); !errors.As(err, &short) || short.Need != 11 {
		t.Errorf("short file: %v", err)
	}
	if _, err := NewSequential(f, 0, 1); err == nil {
		t.Error("context 0 was accepted")
	}
	s, err := NewSequential(f, 3, 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range []int64{-1, s.Batches()} {
		if _, err := s.At(i, make([]int32, s.BatchLen())); err == nil {
			t.Errorf("batch %d succeeded", i)
		}
	}
	if _, err := s.At(0, make([]int32, 1)); err == nil {
		t.Error("a buffer of the wrong size was accepted")
	}
}
