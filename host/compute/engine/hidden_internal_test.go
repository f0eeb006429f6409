package engine

import (
	"strings"
	"testing"

	"github.com/gomlx/compute"

	"github.com/cage-qat/cage/host/compute/device"
)

// fakeBuilder is a builder whose main function is made of other fields.
type fakeBuilder struct {
	compute.Builder
	main compute.Function
}

func (b fakeBuilder) Main() compute.Function { return b.main }

type (
	otherFunction struct{ compute.Function }
	noInputs      struct {
		compute.Function
		fn *struct{ Outputs []*int }
	}
	noAttributes struct {
		compute.Function
		fn *struct {
			Inputs []*struct{ Attributes []string }
		}
	}
	asKnown struct {
		compute.Function
		fn *struct {
			Inputs []*struct{ Attributes map[string]any }
		}
	}
)

// TestHiddenFields: what is not as it is known is an error that names it.
func TestHiddenFields(t *testing.T) {
	known := asKnown{fn: new(struct {
		Inputs []*struct{ Attributes map[string]any }
	})}
	for _, c := range []struct {
		main compute.Function
		want string
	}{
		{otherFunction{}, "engine.otherFunction has no function fn"},
		{noInputs{}, "has no function fn"}, // it is nil
		{noInputs{fn: new(struct{ Outputs []*int })}, "has no list of Inputs"},
		{noAttributes{fn: new(struct {
			Inputs []*struct{ Attributes []string }
		})}, "has no Attributes of type map[string]interface"},
		{known, ""},
	} {
		_, err := mainInputs(fakeBuilder{main: c.main})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%T: %v, want it to say %q", c.main, err, c.want)
		}
	}
	if _, err := hiddenMaps(&struct{ scalars []int }{}, graphCaches); err == nil || !strings.Contains(err.Error(), "has no map scalars") {
		t.Errorf("a list in the place of a map: %v", err)
	}
}

// TestThreadsReachBackend guards the reflection in setParallelism against a change in the backend.
func TestThreadsReachBackend(t *testing.T) {
	for threads, want := range map[int]string{0: "parallelism=-1", 3: "parallelism=3"} {
		d, err := Open(device.CPU, Options{Threads: threads})
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Description(); !strings.Contains(got, want) {
			t.Errorf("with %d threads the device is %q, want %q in it", threads, got, want)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestSetParallelismReportsChangedBackend(t *testing.T) {
	type noPool struct{ compute.Backend }
	type otherPool struct {
		compute.Backend
		Workers int
	}
	for _, backend := range []compute.Backend{&noPool{}, &otherPool{}} {
		if err := setParallelism(backend, 1); err == nil {
			t.Errorf("no error for %T", backend)
		}
	}
}

func TestBuildInfo(t *testing.T) {
	d, err := Open(device.CPU, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	info := d.BuildInfo()
	if info != d.BuildInfo() {
		t.Error("two calls differ")
	}
	line := info.String()
	for _, want := range []string{"device=cpu", "go=go1.", "simd=" + vectorInstructions(), "gomlx=v", "backend=compute@v"} {
		if !strings.Contains(line, want) {
			t.Errorf("build info %q lacks %q", line, want)
		}
	}
}
