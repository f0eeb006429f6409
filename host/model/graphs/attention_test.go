package graphs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/host/testing/testdevice"
)

// withFusedAttention opens a device and compares its fused attention with plain attention. It skips
// the test if the device has none for these sizes.
func withFusedAttention(t *testing.T, c coreSizes) *engine.Device {
	t.Helper()
	d := testdevice.Open(t, engine.Options{Precision: device.BFloat16})
	if testdevice.Kind() == device.CPU {
		t.Skip("the CPU has none for graphs")
	}
	if err := d.Try(c.trial()); errors.Is(err, engine.ErrRefused) {
		t.Skip("fused attention is not used: ", err)
	} else if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestFusedAttention compares fused attention, if the device has it, with products and a softmax.
func TestFusedAttention(t *testing.T) {
	for _, c := range []coreSizes{{1, 64, 128, false, 1. / 8}, {1, 128, 512, false, 1. / 64},
		{3, 64, 192, false, 1. / 8}, {2, 32, 129, false, 1. / 6}, {1, 64, 512, true, 1. / 8},
		{2, 128, 256, true, 1. / 11}} {
		t.Run(c.kind(), func(t *testing.T) { withFusedAttention(t, c) })
	}
}

// TestMarkedCore checks that the additional features of separatingCore separate documents like a
// mask, with a core that only masks later keys: in values and gradients, for scores that are far
// apart.
func TestMarkedCore(t *testing.T) {
	for _, c := range []coreSizes{{1, 8, 12, true, 1. / 3}, {2, 16, 300, true, 1. / 4}} {
		t.Run(c.kind(), func(t *testing.T) {
			const batch, keyHeads = 2, 2
			rng := rand.New(rand.NewPCG(3, uint64(c.context)))
			d := testdevice.Open(t, engine.Options{})
			var in []*engine.Buffer
			for _, heads := range []int{keyHeads * c.group, keyHeads, keyHeads, keyHeads * c.group} {
				values := make([]float32, batch*c.context*heads*c.size)
				for i := range values {
					values[i] = float32(4 * rng.NormFloat64())
				}
				in = append(in, testdevice.Upload(t, d, values, batch, c.context, heads, c.size))
			}
			documents := randomDocuments(rng, batch, c.context)
			if n := slices.Max(documents); n < 2 || !slices.Contains(documents, dataset.Padding) {
				t.Fatalf("only %d documents, or no padding", n)
			}
			marked := func(segments *graph.Node) attentionCore {
				return separatingCore(segments,
					maskedCore(network.Attending{Scale: c.scale},
						func(x *graph.Node) *graph.Node { return maskScores(x, nil, 0) }))
			}
			plain := func(segments *graph.Node) attentionCore {
				return plainCore(network.Attending{Scale: c.scale}, segments)
			}
			want := testdevice.Evaluate(t, d, in, coreAndAdjoints(documents, plain))
			got := testdevice.Evaluate(t, d, in, coreAndAdjoints(documents, marked))
			for i := range want {
				// Sums of more terms have another order: scores of up to 300 have rounding errors of 1e-5.
				if apart := engine.Distance(got[i], want[i]); !(apart < 1e-5) {
					t.Errorf("output %d: the relative difference is %.2g", i, apart)
				}
			}
			if apart := engine.Distance(testdevice.Evaluate(t, d, in, coreAndAdjoints(nil, plain))[0],
				want[0]); apart < 0.1 {
				t.Errorf("without documents the values are only %.2g away", apart)
			}
		})
	}
}

// TestAttentionChoice checks that a device without fused attention computes attention plainly and
// warns only once.
func TestAttentionChoice(t *testing.T) {
	var warnings []string
	d, err := engine.Open(device.CPU,
		engine.Options{Precision: device.BFloat16, Warn: func(message string, details ...any) {
			warnings = append(warnings, message+": "+fmt.Sprint(details...))
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	c := coreSizes{group: 1, size: 8, context: 32, scale: 1. / 3}
	for range 2 {
		if c.choose(d, nil) == nil {
			t.Error("there is no attention")
		}
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], "without the device's fused operation") ||
		!strings.Contains(warnings[0], engine.ErrRefused.Error()) {
		t.Errorf("warnings are %q, want one", warnings)
	}
}
