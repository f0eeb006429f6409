package train_test

import (
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
)

// overrides returns [[quantizer.overrides]] from the contents of inline tables.
func overrides(list ...string) string {
	return "quantizer.overrides=[{" + strings.Join(list, "}, {") + "}]"
}

// TestOverridesOfEverything checks that overrides for all tensors equal the table of the quantizer.
func TestOverridesOfEverything(t *testing.T) {
	plain := testrun.Config(t, testrun.TwoLayers)
	testrun.Train(t, plain, train.Options{})
	for name, set := range map[string][]string{
		"all names": {`quantizer={plugin="none"}`, `method.form="decoupled"`,
			overrides(`match="*", plugin="quest", bits=4`)},
		"all blocks": {`quantizer={plugin="none"}`, `method.form="decoupled"`,
			overrides(`layers=[0, -1], plugin="quest", bits=4`)},
		"nothing of it": {overrides(`match="*", plugin="absmax"`, `match="*", plugin="quest", bits=4`)},
	} {
		if testing.Short() && name != "all blocks" && name != "nothing of it" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			cfg := testrun.Elsewhere(t, plain, set...)
			_, err := train.Run(t.Context(), cfg, train.Options{Finder: testrun.Finder(t)})
			if name == "nothing of it" {
				if err == nil || !strings.Contains(err.Error(), "quantizer.overrides[0]: has no effect") {
					t.Errorf("an override that others replace: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			testrun.SameRun(t, name, plain.Train.Out, cfg.Train.Out)
		})
	}
}
