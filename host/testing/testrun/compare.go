package testrun

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
)

// Checkpoint opens the checkpoint that a run saved after the given step, and closes it when the
// test ends.
func Checkpoint(t testing.TB, dir string, step int) checkpoint.State {
	t.Helper()
	f, err := checkpoint.Open(rundir.At(dir).Checkpoints().Join(checkpoint.FileName(step)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := f.Verify(); err != nil {
		t.Fatal(err)
	}
	return f.State
}

// Newest opens the newest checkpoint of a run, and closes it when the test ends.
func Newest(t testing.TB, dir string) checkpoint.State {
	t.Helper()
	list, err := checkpoint.List(rundir.At(dir).Checkpoints())
	if err != nil || len(list) == 0 {
		t.Fatalf("%d checkpoints in %s, %v", len(list), dir, err)
	}
	return Checkpoint(t, dir, list[len(list)-1].Step)
}

// Values returns the elements of a checkpoint's tensors, by tensor name.
func Values(t testing.TB, s checkpoint.State) map[string][]float32 {
	t.Helper()
	out := map[string][]float32{}
	for _, tensor := range s.Tensors {
		v, err := checkpoint.Floats(tensor)
		if err != nil {
			t.Fatal(err)
		}
		out[tensor.Name] = v
	}
	return out
}

// SameTensors fails the test if any tensors of two checkpoints differ in any bit.
func SameTensors(t testing.TB, what string, a, b checkpoint.State) {
	t.Helper()
	byName := map[string]safetensors.Tensor{}
	for _, x := range a.Tensors {
		byName[x.Name] = x
	}
	if len(a.Tensors) == 0 || len(a.Tensors) != len(b.Tensors) {
		t.Fatalf("%s: %d and %d tensors", what, len(a.Tensors), len(b.Tensors))
	}
	different := 0
	for _, y := range b.Tensors {
		x, ok := byName[y.Name]
		if !ok || x.DType != y.DType || !slices.Equal(x.Shape, y.Shape) ||
			!bytes.Equal(content(t, x), content(t, y)) {
			different++
			if different == 1 {
				t.Errorf("%s: %s differs", what, y.Name)
			}
		}
	}
	if different > 1 {
		t.Errorf("%s: %d of %d tensors differ", what, different, len(b.Tensors))
	}
}

func content(t testing.TB, x safetensors.Tensor) []byte {
	t.Helper()
	data, err := x.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Records returns the records of a run as JSON text in which numbers keep all digits. It omits
// values that depend on the clock or on the memory of the process.
func Records(t testing.TB, dir string) []string {
	t.Helper()
	data, err := rundir.At(dir).Metrics().ReadFile()
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for line := range bytes.Lines(data) {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(line, &fields); err != nil {
			t.Fatal(err)
		}
		maps.DeleteFunc(fields, func(name string, _ json.RawMessage) bool { return metrics.Timed(name) })
		text, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, string(text))
	}
	return list
}

// SameRun fails the test if two finished runs of the same length differ, either in the tensors of
// the last checkpoint or in the records.
func SameRun(t testing.TB, what, a, b string) {
	t.Helper()
	x, y := Newest(t, a), Newest(t, b)
	if x.Step != y.Step {
		t.Fatalf("%s: the last checkpoints are of steps %d and %d", what, x.Step, y.Step)
	}
	SameTensors(t, what, x, y)
	if diff := cmp.Diff(Records(t, a), Records(t, b)); diff != "" {
		t.Errorf("%s: the records differ:\n%s", what, diff)
	}
}
