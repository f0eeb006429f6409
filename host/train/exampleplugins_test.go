package train_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/internal/effort"
)

// TestExamplePlugins: the quantizers in examples/plugins, each of which needs what few others do, train a small model; a run that
// is stopped and resumed ends with the bits of one that is not.
func TestExamplePlugins(t *testing.T) {
	effort.Long(t, "builds plugins")
	finder, err := plugin.NewFinder()
	if err != nil {
		t.Fatal(err)
	}
	for name, overrides := range map[string][]string{
		"stochastic": {"train.accumulate=2"}, // noise of every step and micro-batch
		"delayed":    {"train.accumulate=2"}, // state
	} {
		t.Run(name, func(t *testing.T) {
			exe, err := finder.Find(t.Context(), filepath.Join("../../examples/plugins", name))
			if err != nil {
				t.Fatal(err)
			}
			whole := testrun.Config(t, append(overrides, fmt.Sprintf("quantizer={plugin=%q}", exe.Path), "method.silence=0.5")...)
			parts := testrun.Elsewhere(t, whole)
			testrun.Train(t, whole, train.Options{})
			runParts(t, parts, 3, 11)
			testrun.Train(t, testrun.Again(t, parts), train.Options{Resume: true})
			testrun.SameRun(t, "whole, and in parts", whole.Train.Out, parts.Train.Out)
			list := losses(t, whole.Train.Out)
			if first, last := list[0], list[len(list)-1]; !(last < first) {
				t.Errorf("the loss goes from %v to %v", first, last)
			}
		})
	}
}
