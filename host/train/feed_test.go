package train

import (
	"errors"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/train/step"
)

// numbered are batches of two elements: twice their index.
type numbered struct{ fails int64 }

var errNoBatch = errors.New("no such batch")

func (numbered) BatchLen() int { return 2 }

func (numbered) Finish(batches [][]int32) int64 { return int64(10 * len(batches)) }

func (n numbered) At(index int64, dst []int32) error {
	if index == n.fails {
		return errNoBatch
	}
	dst[0], dst[1] = int32(index), int32(index)
	return nil
}

// TestFeed: every step gets its own batches, in whatever order they are asked for, and
// those of the next are read ahead, but none after the last.
func TestFeed(t *testing.T) {
	loaded := make(chan [][]int32, 3)
	f := &feed{source: numbered{fails: -1}, last: 7, arrived: make(chan delivery, 1), load: func(b [][]int32) (*step.Batches, error) {
		loaded <- [][]int32{slices.Clone(b[0]), slices.Clone(b[1])}
		return &step.Batches{}, nil
	}}
	for i := range f.memory {
		f.memory[i] = [][]int32{{0, 0}, {0, 0}}
	}
	want := func(at int) {
		t.Helper()
		first := int32(2 * (at - 1))
		if got := <-loaded; got[0][0] != first || got[1][0] != first+1 {
			t.Errorf("step %d has the batches %v, want %d and the next", at, got, first)
		}
	}
	for _, at := range []int{4, 5} {
		if d, err := f.take(at); err != nil || d.targets != 20 {
			t.Fatalf("%d targets, %v", d.targets, err)
		}
	}
	want(4)
	want(5)
	want(6) // ahead, and not taken
	if _, err := f.take(7); err != nil {
		t.Fatal(err)
	}
	want(7)
	f.close()
	if len(loaded) > 0 {
		t.Errorf("after the last step %v was loaded", <-loaded)
	}
}

// TestFeedFails: an error arrives with the step that it belongs to.
func TestFeedFails(t *testing.T) {
	f := &feed{source: numbered{fails: 2}, last: 9, arrived: make(chan delivery, 1), load: func([][]int32) (*step.Batches, error) { return &step.Batches{}, nil }}
	for i := range f.memory {
		f.memory[i] = [][]int32{{0, 0}}
	}
	defer f.close()
	for at := 1; at <= 3; at++ {
		if _, err := f.take(at); errors.Is(err, errNoBatch) != (at == 3) {
			t.Errorf("step %d: %v", at, err)
		}
	}
}
