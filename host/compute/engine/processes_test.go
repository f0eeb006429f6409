package engine

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/shapes"
)

func TestOwnGPUs(t *testing.T) {
	for _, c := range []struct {
		seen, local, n int
		want           []int64
	}{
		{1, 0, 1, nil},
		{1, 3, 1, nil}, // a launcher has assigned the GPU
		{8, 0, 8, nil},
		{8, 0, 4, []int64{0, 1, 2, 3}},
		{8, 1, 4, []int64{4, 5, 6, 7}},
		{8, -1, 2, []int64{0, 1}},
		{4, 2, 2, nil}, // too few: an error when the device is opened
	} {
		if got := ownGPUs(c.seen, c.local, c.n); !slices.Equal(got, c.want) {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

// others implements only the methods of Processes that the tests call.
type others struct {
	Processes
	rank, size int
	gone       chan struct{}
	votes      []int64
}

func (o others) Rank() int             { return o.rank }
func (o others) Size() int             { return o.size }
func (o others) Gone() <-chan struct{} { return o.gone }
func (o others) Err() error            { return errors.New("process 1 is gone") }
func (o others) Agree(string, int64) ([]int64, error) {
	return o.votes, nil
}

func TestProcesses(t *testing.T) {
	o := others{rank: 1, size: 2, gone: make(chan struct{})}
	d := newDevice(device.CUDA, Options{Count: 4, Processes: o}, nil)
	if first, n := d.mine(); first != 2 || n != 2 {
		t.Errorf("the second of two processes has %d replicas from %d on", n, first)
	}
	rows, whole := newBuffer(d, nil, shapes.Make(shapes.Float32, 8, 3), true),
		newBuffer(d, nil, shapes.Make(shapes.Float32, 8, 3), false)
	if got := rows.OwnShape(); !slices.Equal(got.Dimensions, []int{4, 3}) || !rows.Elsewhere() ||
		!slices.Equal(rows.Shape().Dimensions, []int{8, 3}) {
		t.Errorf("of rows that four replicas have it has %s", got)
	}
	if got := whole.OwnShape(); !slices.Equal(got.Dimensions, []int{8, 3}) || whole.Elsewhere() {
		t.Errorf("of what each replica has it has %s", got)
	}
	if _, err := Download[float32](rows); err == nil ||
		!strings.Contains(err.Error(), "other processes hold parts of the tensor") {
		t.Errorf("downloading the whole: %v", err)
	}
	never := make(chan struct{})
	defer close(never)
	time.AfterFunc(10*time.Millisecond, func() { close(o.gone) })
	err := d.execute(func() error { <-never; return nil })
	if lost, ok := errors.AsType[*LostError](err); !ok || lost.Error() != "process 1 is gone" ||
		!d.gone() {
		t.Errorf("an execution that waits for a lost process ends with %v", err)
	}
	cause := errors.New("connection reset")
	if err := d.lost(cause); !errors.Is(err, cause) || err.Error() != "process 1 is gone" {
		t.Errorf("an execution that fails because of it ends with %v", err)
	}
	kernel := errors.New("process 1 has failed: an illegal address")
	step := &ExecutableError{"s", Running, &LostError{Err: kernel}}
	if text := step.Error(); text != `executable "s": running: process 1 has failed: an illegal address` {
		t.Errorf("the error of a step that waits for it is %s", text)
	}
	if err := d.checkOpen(); err == nil || err.Error() != "process 1 is gone" {
		t.Errorf("what follows ends with %v", err)
	}
}

// TestAgree checks that a trial passes only if it passes on all processes.
func TestAgree(t *testing.T) {
	for _, c := range []struct {
		factor float32
		votes  []int64
		want   bool
	}{{2, []int64{1, 1}, true}, {2, []int64{1, 0}, false}, {3, []int64{0, 1}, false}} {
		d, err := Open(device.CPU, Options{Count: 1})
		if err != nil {
			t.Fatal(err)
		}
		d.options.Processes = others{size: 1, votes: c.votes}
		if got := d.Passes("doubling", "",
			func() (Trial, error) { return doubling(c.factor), nil }); got != c.want {
			t.Errorf("%+v: got %t", c, got)
		}
		d.options.Processes = nil
		d.Close()
	}
}
