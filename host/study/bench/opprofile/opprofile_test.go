package opprofile_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/study/bench/opprofile"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// sample is one stack, leaf first.
func sample(nanoseconds int64, executable string, stack ...string) *profile.Sample {
	s := &profile.Sample{Value: []int64{1, nanoseconds}}
	for _, name := range stack {
		s.Location = append(s.Location, &profile.Location{Line: []profile.Line{{Function: &profile.Function{Name: name}}}})
	}
	if executable != "" {
		s.Label = map[string][]string{engine.ProfileLabel: {executable}}
	}
	return s
}

func cpuProfile(samples ...*profile.Sample) *profile.Profile {
	return &profile.Profile{
		SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}},
		Sample:     samples,
	}
}

func Example() {
	rows, err := opprofile.Rows(cpuProfile(
		sample(3e9, "gradient", "runtime.memmove", "x/gobackend/dot/matmul.pack", "x/gobackend.run"),
		sample(1e9, "gradient", "x/gobackend/ops.execMulSIMD"),
		sample(1e9, "update (off)", "x/gobackend/ops.execMulSIMD"),
		sample(5e8, "", "runtime.memmove", "main.main"),
	))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range opprofile.By(rows, func(r opprofile.Row) string { return r.Kind }) {
		fmt.Printf("%-16s %.1f s\n", r.Kind, r.Seconds)
	}
	fmt.Println("first:", rows[0].Executable, rows[0].Kind)
	// Output:
	// matrix products  3.0 s
	// elementwise      2.0 s
	// other            0.5 s
	// first: gradient matrix products
}

func TestRowsRefuse(t *testing.T) {
	if _, err := opprofile.Rows(&profile.Profile{}); err == nil {
		t.Error("a profile without processor time is accepted")
	}
}

// TestMeasureSeesTheEngine: the names that the rules look for are those of the engine
// in use, and its goroutines carry the executable's label.
func TestMeasureSeesTheEngine(t *testing.T) {
	testlevel.Long(t, "measures")
	dev, err := engine.Open("cpu", engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	const n = 512
	shape := shapes.Make(dtypes.Float32, n, n)
	e, err := dev.Compile("gradient", []engine.Spec{{Name: "x", Shape: shape}}, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		y := graph.DotGeneral(in[0], []int{1}, nil, in[0], []int{0}, nil)
		for range 40 {
			y = graph.Mul(y, in[0])
		}
		return []*graph.Node{y}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	x, err := engine.Upload(dev, make([]float32, n*n), n, n)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Finalize()
	rows, err := opprofile.Measure(t.Context(), func(context.Context) error {
		for range 100 {
			out, err := e.Run([]*engine.Buffer{x}, nil)
			if err != nil {
				return err
			}
			engine.FinalizeAll(out...)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	labelled, total := 0.0, 0.0
	for _, r := range rows {
		total += r.Seconds
		if r.Executable == "gradient" {
			seen[r.Kind] = true
			labelled += r.Seconds
		}
	}
	if total == 0 {
		t.Skip("the system samples no processor time")
	}
	if !seen[opprofile.Products] || !seen[opprofile.Elementwise] {
		t.Errorf("kinds seen: %v, want matrix products and elementwise operations", seen)
	}
	if labelled < total/2 {
		t.Errorf("%.2f s of %.2f s carry the label of the executable", labelled, total)
	}
}
