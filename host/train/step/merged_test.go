package step_test

import (
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/testing/testrun"
)

// TestMergedAreNotKept checks that only those merged weights take memory during the forward and
// backward pass that these read.
func TestMergedAreNotKept(t *testing.T) {
	for settings, want := range map[string]int{
		`quantizer={weights={plugin="absmax"}}`: 0,
		`quantizer={plugin="none"}`:             10,
	} {
		cfg, _ := testrun.FromHub(t, "adapters.rank=2", settings)
		cfg.Model.Vocab = 328
		names, err := testrun.Compile(t, testrun.Plan(t, cfg)).QuantizeOutputs()
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		for _, name := range names {
			if strings.HasPrefix(name, "merged/") {
				got++
			}
		}
		if got != want {
			t.Errorf("%s: %d merged weights are kept, want %d: %v", settings, got, want, names)
		}
	}
}
