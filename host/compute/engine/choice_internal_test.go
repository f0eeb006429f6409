package engine

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
)

// doubling is a trial in which one way doubles numbers by a native, after a pause, and the other by an addition.
func doubling(factor float32, fusedPause, plainPause time.Duration) Trial {
	const n = 4
	way := func(factor float32, pause time.Duration) BuildFunc {
		return func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
			return Native{Name: "doubling", Outputs: []shapes.Shape{shapes.Make(dtypes.Float32, n)}, Run: func(in, out []Tensor, _ Parallel) error {
				time.Sleep(pause)
				x, y := in[0].Flat.([]float32), out[0].Flat.([]float32)
				for i := range x {
					y[i] = factor * x[i]
				}
				return nil
			}}.Call(in...)
		}
	}
	return Trial{
		Inputs: []Input{{Spec: Spec{Name: "x", Shape: shapes.Make(dtypes.Float32, n)}, Data: []float32{1, 2, 3, 4}}},
		Fused:  way(factor, fusedPause),
		Plain:  way(2, plainPause),
		Compare: func(fused, plain [][]float32) error {
			if !slices.Equal(fused[0], plain[0]) {
				return errors.New("other values")
			}
			return nil
		},
	}
}

func openForChoices(t *testing.T, choices ...Choice) (*Device, *[]string) {
	t.Helper()
	var warnings []string
	d, err := Open(device.CPU, Options{Choices: choices, Warn: func(message string, details ...any) { warnings = append(warnings, message) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d, &warnings
}

// TestTrial: a kernel that is refused, computes something else, or is slow is not chosen; one that is faster or as fast is.
func TestTrial(t *testing.T) {
	const soon, late = time.Millisecond, 20 * time.Millisecond
	refused := doubling(2, 0, 0)
	refused.Fused = func(*graph.Graph, []*graph.Node) []*graph.Node { panic(errors.New("no such operation")) }
	prepared := doubling(2, soon, late)
	prepared.Prepare = func(_ *graph.Graph, in []*graph.Node) []*graph.Node { return []*graph.Node{graph.AddScalar(in[0], 1)} }
	for name, tt := range map[string]struct {
		trial  Trial
		timed  bool
		fused  bool
		reason string
	}{
		"fast":         {doubling(2, soon, late), true, true, ""},
		"slow":         {doubling(2, late, soon), true, false, ""},
		"slow, on CPU": {doubling(2, late, soon), false, true, ""},
		"wrong":        {doubling(3, soon, late), true, false, "other values"},
		"refused":      {refused, true, false, "the device does not have it: "},
		"prepared":     {prepared, true, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d, _ := openForChoices(t)
			c := Choice{Kind: "doubling", Fused: true}
			err := d.try(&c, tt.trial, tt.timed)
			if (err == nil) != (tt.reason == "") || err != nil && !strings.Contains(err.Error(), tt.reason) {
				t.Fatalf("the trial fails with %v, want %q", err, tt.reason)
			}
			if errors.Is(err, ErrRefused) != (name == "refused") {
				t.Errorf("refused? %v", err)
			}
			if err == nil && c.Fused != tt.fused {
				t.Errorf("fused is chosen: %t (%s)", c.Fused, c)
			}
			if timed := c.FusedMilliseconds > 0 && c.PlainMilliseconds > 0; timed != (tt.timed && err == nil) {
				t.Errorf("times of %s", c)
			}
		})
	}
}

// TestChooseFused: a kind is tried once, a refusal warns and leaves other kinds alone, and the choices with which a run
// began are kept, except for what the device has no more.
func TestChooseFused(t *testing.T) {
	timed := Choice{Kind: "kept", Fused: true, FusedMilliseconds: 1, PlainMilliseconds: 2}
	d, warnings := openForChoices(t, timed, Choice{Kind: "left"}, Choice{Kind: "gone", Fused: true}, Choice{Kind: "unasked", Fused: true})
	tried := map[string]int{}
	choose := func(kind string, factor float32) bool {
		return d.ChooseFused(kind, kind+" is refused", func() (Trial, error) {
			tried[kind]++
			return doubling(factor, 0, 0), nil
		})
	}
	for range 2 {
		for kind, want := range map[string]bool{"right": true, "wrong": false, "kept": true, "left": false, "gone": false} {
			factor := float32(2)
			if kind == "wrong" || kind == "gone" {
				factor = 3
			}
			if got := choose(kind, factor); got != want {
				t.Errorf("%s: %t, want %t", kind, got, want)
			}
		}
	}
	if tried["right"] != 1 || tried["wrong"] != 1 || tried["kept"] != 1 || tried["left"] != 0 {
		t.Errorf("trials: %v", tried)
	}
	slices.Sort(*warnings)
	if !slices.Equal(*warnings, []string{"gone is refused", "wrong is refused"}) {
		t.Errorf("warnings: %q", *warnings)
	}
	if !d.Excludes("left") || d.Excludes("kept") || d.Excludes("right") {
		t.Error("what the run began without is not known")
	}
	var got []string
	for _, c := range d.Choices() {
		got = append(got, c.String())
	}
	want := []string{"gone: operations, because other values", "kept: fused (fused 1 ms, operations 2 ms)", "left: operations", "right: fused", "unasked: fused", "wrong: operations, because other values"}
	if !slices.Equal(got, want) {
		t.Errorf("choices:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
