package train_test

import (
	"fmt"
	"testing"

	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// TestFewBits checks that quantizers for few bits train with each number of bits, that the
// correction changes the run, and that a resumed run gives the same bits.
func TestFewBits(t *testing.T) {
	testlevel.Long(t, "trains models")
	settings := map[string]string{}
	for bits := range 5 {
		settings[fmt.Sprintf("paretoq, %d", bits)] = fmt.Sprintf(
			`quantizer={weights={plugin="paretoq", bits=%d}}`, bits)
	}
	for bits := 2; bits <= 4; bits++ {
		settings[fmt.Sprintf("lsq and stableqat, %d", bits)] = fmt.Sprintf(
			`quantizer={plugin="lsq", bits=%d, surrogate="sine"}`, bits)
		settings[fmt.Sprintf("stableqat, %d", bits)] = fmt.Sprintf(
			`quantizer={weights={plugin="lsq", bits=%d, surrogate="sine", form="stableqat", granularity="row"}}`, bits)
	}
	for name, quantizer := range settings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			on := testrun.Config(t, "train.steps=30", "schedule.rate=3e-3", "method.lambda=5.0",
				"method.silence=0.5", "train.log_every=1", "train.eval_every=0", quantizer)
			testrun.Train(t, on, train.Options{})
			fell(t, on.Train.Out)
			inParts(t, on, 13)
			off := testrun.Elsewhere(t, on, `method.form="off"`)
			testrun.Train(t, off, train.Options{})
			fell(t, off.Train.Out)
			a, b := losses(t, on.Train.Out), losses(t, off.Train.Out)
			if a[len(a)-1] == b[len(b)-1] {
				t.Error("the correction changes nothing")
			}
		})
	}
}
