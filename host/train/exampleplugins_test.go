package train_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk/program"
)

// TestExamplePlugins checks that the quantizers in examples/plugins, each with a feature that few
// others use, train a small model, and that a resumed run gives the same bits.
func TestExamplePlugins(t *testing.T) {
	testlevel.Long(t, "builds plugins")
	for name, settings := range map[string]string{
		"stochastic": "",           // noise for every step and micro-batch
		"delayed":    "",           // state
		"vq":         ", bits = 4", // state that is a codebook
		// state computed from statistics of both operands
		"smoothquant": "",
		"outcontrol":  "",
	} {
		t.Run(name, func(t *testing.T) {
			exe := testrun.Example(t, name)
			whole := testrun.Config(t, "train.accumulate=2",
				fmt.Sprintf("quantizer={plugin=%q%s}", exe.Path, settings), "method.silence=0.5")
			parts := testrun.Elsewhere(t, whole)
			testrun.Train(t, whole, train.Options{})
			runParts(t, parts, 3, 11)
			testrun.Train(t, testrun.Again(t, parts), train.Options{Resume: true})
			testrun.SameRun(t, "whole, and in parts", whole.Train.Out, parts.Train.Out)
			list := losses(t, whole.Train.Out)
			if first, last := list[0], list[len(list)-1]; !(last < first) {
				t.Errorf("the loss goes from %v to %v", first, last)
			}
			if name == "vq" {
				haveCodebooks(t, testrun.Values(t, testrun.Newest(t, whole.Train.Out)))
			}
		})
	}
}

// haveCodebooks checks that a checkpoint has vq's state for weights and activations: shares of
// groups that sum to 1 and are not all equal.
func haveCodebooks(t *testing.T, tensors map[string][]float32) {
	t.Helper()
	for _, site := range []string{"layers.0.mlp.down", "layers.0.mlp.down.input"} {
		shares := tensors[program.KindQuantizerState.PartOf(site, "shares")]
		if len(shares) != 16 || len(tensors[program.KindQuantizerState.PartOf(site, "sums")]) != 2*16 {
			t.Errorf("%s: the shares are %v", site, shares)
			continue
		}
		sum := 0.0
		for _, v := range shares {
			sum += float64(v)
		}
		if math.Abs(sum-1) > 1e-5 || slices.Min(shares) == slices.Max(shares) {
			t.Errorf("%s: the shares are %v, with the sum %v", site, shares, sum)
		}
	}
}
