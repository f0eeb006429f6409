package lower_test

import (
	"fmt"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/sdk/program"
)

// fewElements are enough for a trial on the CPU.
const fewElements = 1 << 14

// TestSubjects checks that the trial program of each kind of kernels passes if the device executes
// the bodies of kernels, with rows of any width.
func TestSubjects(t *testing.T) {
	for _, tt := range []struct {
		kind         lower.Kind
		width, block int
		columnFirst  bool // the first input has a number for each row
	}{
		{kind: lower.Quantizers, width: 640}, {kind: lower.Quantizers, width: 77},
		{kind: lower.Rotations, width: 384, block: 128},
		{kind: lower.LargeRotations, width: 512, block: 512},
		{kind: lower.Joined, width: 640, block: 128}, {kind: lower.Joined, width: 48},
		{kind: lower.Rotations, width: 384, block: 128, columnFirst: true},
	} {
		t.Run(fmt.Sprint(tt), func(t *testing.T) {
			d := testdevice.Open(t,
				engine.Options{Precision: device.BFloat16, Kernels: device.BodyKernels})
			b := program.NewBuilder("test/quantizer")
			if tt.columnFirst {
				b.Input("scale", program.FloatType(64, 1))
			}
			y := b.Input("x", program.FloatType(64, tt.width)).Round()
			if tt.block > 0 {
				y = y.Hadamard(tt.block)
			}
			b.Output("value", y)
			p, err := b.Build()
			if err != nil {
				t.Fatal(err)
			}
			s := lower.SubjectOf(p, 64, tt.kind == lower.Joined)
			if s.Kind != tt.kind {
				t.Errorf("it is one of %s", s.Kind)
			}
			trial, err := s.Trial(fewElements)
			if err == nil {
				err = d.Try(trial)
			}
			if err != nil {
				t.Fatal(err)
			}
			if p, err = s.Of(64); err != nil {
				t.Fatal(err)
			}
			if got := lower.SubjectOf(p, 64, tt.kind == lower.Joined).Kind; got != tt.kind {
				t.Errorf("its trial is of one of %s", got)
			}
		})
	}
}
