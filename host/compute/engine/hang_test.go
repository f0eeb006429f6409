package engine_test

import (
	"bytes"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/testing/pjrtrecord"
)

// TestHang checks that a step on a device that does not answer fails after Options.Timeout, and
// that later calls do not wait for the device, neither to compute nor to free memory.
func TestHang(t *testing.T) {
	const limit = time.Second
	d, _ := record(t, engine.Options{Timeout: limit, Count: 2})
	e := compile(t, d, []engine.Spec{{Name: "x", Shape: f32(2)}},
		func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
			return []*graph.Node{graph.AddScalar(in[0], 1)}
		})
	x, err := engine.Upload(d, []float32{1, 2}, 2)
	if err != nil {
		t.Fatal(err)
	}
	before, err := e.Run([]*engine.Buffer{x}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(pjrtrecord.FaultVariable, "execute|0|0||hang")
	uploads := make(chan struct{})
	go func() { // as training uploads the next batches during a step
		var err error
		for err == nil {
			_, err = engine.Upload(d, []float32{1})
		}
		close(uploads)
	}()
	_, err = e.Run([]*engine.Buffer{x}, nil)
	hang, ok := errors.AsType[*engine.HangError](err)
	if !ok || hang.Limit != limit || hang.Count != 2 {
		t.Fatalf("the step returned %v, want a HangError after %v", err, limit)
	}
	began := time.Now()
	<-uploads
	if _, err := engine.Download[float32](before[0]); err == nil {
		t.Error("a download from a device that hangs succeeds")
	}
	if _, err := engine.Upload(d, []float32{1}); err == nil {
		t.Error("an upload to a device that hangs succeeds")
	}
	if _, err := e.Run([]*engine.Buffer{x}, nil); err == nil {
		t.Error("a step on a device that hangs succeeds")
	}
	if err := errors.Join(engine.FinalizeAll(x, before[0]), e.Close(), d.Close()); err != nil {
		t.Error(err)
	}
	if waited := time.Since(began); waited > limit {
		t.Errorf("what follows took %v", waited)
	}
	// Calls that hang continue when the fault ends. They must not be recorded in the next test.
	t.Setenv(pjrtrecord.FaultVariable, "")
	stacks := make([]byte, 1<<20)
	for ended := time.Now().Add(10 * time.Second); bytes.Contains(stacks[:runtime.Stack(stacks, true)],
		[]byte(").within.func")); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(ended) {
			t.Fatal("a call goes on hanging without the fault")
		}
	}
}
