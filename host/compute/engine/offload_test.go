package engine_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/internal/testing/pjrtrecord"
)

// offloading compiles a step with a parameter on the device and a state of the same shape in the machine's memory.
func offloading(t *testing.T, d *engine.Device) *engine.Executable {
	t.Helper()
	specs := []engine.Spec{
		{Name: "state", Shape: f32(4, 2), Sharded: d.Count() > 1, Donated: true, Host: true},
		{Name: "x", Shape: f32(4, 2), Sharded: d.Count() > 1, Donated: true},
	}
	e, err := d.Compile("step", specs, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		state := engine.Fetch(engine.FromHost(in[0], false), graph.ReduceAllSum(in[1]))
		next := graph.Add(state, in[1])
		x := graph.Sub(in[1], next)
		return []*graph.Node{engine.Sharded(x), engine.ToHost(engine.Sharded(next))}
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestOffload: the program says of the state alone, as an input and as an output, that it is in the machine's memory, and that one may
// replace the other there; it is fetched after what it waits for.
func TestOffload(t *testing.T) {
	for _, gpus := range []int{1, 2} {
		d, r, err := pjrtrecord.Open(t, gpus, engine.Options{Count: gpus, Offload: true})
		if err != nil {
			t.Fatal(err)
		}
		offloading(t, d)
		text := r.Programs(t)[0]
		head := text[strings.Index(text, "@main("):]
		inputs, rest, _ := strings.Cut(head, ") -> ")
		outputs, body, _ := strings.Cut(rest, "\n")
		arguments := strings.Split(inputs, "%")[1:]
		if !strings.Contains(arguments[0], `mhlo.memory_kind = "pinned_host"`) || !strings.Contains(arguments[0], "tf.aliasing_output = 1 : i32") ||
			strings.Contains(arguments[1], "memory_kind") || !strings.Contains(arguments[1], "tf.aliasing_output = 0 : i32") {
			t.Errorf("%d GPUs: inputs %q", gpus, arguments)
		}
		if want := `(tensor<4x2xf32>, tensor<4x2xf32> { mhlo.memory_kind = "pinned_host" }) {`; outputs != want {
			t.Errorf("%d GPUs: outputs %s, want %s", gpus, outputs, want)
		}
		var moves []string
		for line := range strings.Lines(body) {
			for _, what := range []string{"optimization_barrier", "_xla_buffer_placement"} {
				if strings.Contains(line, what) {
					moves = append(moves, strings.TrimSpace(line[strings.Index(line, what)+len(what):]))
				}
			}
		}
		if len(moves) != 3 || moves[1] != `= "device"}` || moves[2] != `= "pinned_host"}` {
			t.Errorf("%d GPUs: moves %q, want a barrier, to the device, to the machine", gpus, moves)
		}
	}
}

// TestOffloadRuns: a state in the machine's memory is uploaded, read, replaced there and downloaded, and buffers elsewhere are no input.
func TestOffloadRuns(t *testing.T) {
	if os.Getenv(pjrtrecord.TestVariable) == "" {
		t.Skip("needs XLA: make xla")
	}
	for _, gpus := range []int{1, 2} {
		plugin, _ := pjrtrecord.XLA(t, gpus)
		d, err := engine.Open(device.CUDA, engine.Options{Plugin: plugin, Count: gpus, Offload: true})
		if err != nil {
			t.Fatal(err)
		}
		e := offloading(t, d)
		upload := func(from float32) *engine.Buffer {
			data := make([]float32, 8*gpus)
			for i := range data {
				data[i] = from + float32(i)
			}
			b, err := engine.UploadSharded(d, data, 4*gpus, 2)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		x, state := upload(1), upload(100)
		if _, err := e.Run([]*engine.Buffer{state, x}, []bool{false, false}); err == nil || !strings.Contains(err.Error(), `input "state": is its buffer in the machine's memory? false, want true`) {
			t.Error(err)
		}
		if err := engine.Offload(state); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			out, err := e.Run([]*engine.Buffer{state, x}, []bool{true, true})
			if err != nil {
				t.Fatal(err)
			}
			x, state = out[0], out[1]
		}
		got, err := engine.Download[float32](state)
		if err != nil {
			t.Fatal(err)
		}
		// After the first step x = −state₀, so that the second adds that to state₀ + x₀.
		for i, v := range got {
			if want := float32(1 + i); v != want {
				t.Fatalf("%d GPUs: state %v", gpus, got)
			}
		}
		if again, err := engine.UploadLike(state, got); err != nil {
			t.Error(err)
		} else if _, err := e.Run([]*engine.Buffer{again, x}, nil); err != nil {
			t.Error(err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestOffloadWithoutPinnedMemory: a plugin that has none is refused in one line, and a device that was opened without Offload moves nothing.
func TestOffloadWithoutPinnedMemory(t *testing.T) {
	d, _, err := pjrtrecord.Open(t, 1, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := engine.Upload(d, []float32{1}, 1)
	if err != nil {
		t.Fatal(err)
	}
	var pinned *engine.PinnedError
	if err := engine.Offload(b); !errors.As(err, &pinned) {
		t.Error(err)
	}
	if err := b.Finalize(); err != nil {
		t.Error(err)
	}
	plugin, r := pjrtrecord.Plugin(t, 1)
	r.NoPinned(t)
	_, err = engine.Open(device.CUDA, engine.Options{Plugin: plugin, Offload: true})
	if !errors.As(err, &pinned) || !strings.Contains(err.Error(), `the PJRT plugin has no memory "pinned_host" for GPU 0, only "device"`) {
		t.Error(err)
	}
}
