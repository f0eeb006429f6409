package metrics_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/metrics"
)

// TestLabel: what is recorded as a number for curves has a name for people, and other names stay.
func TestLabel(t *testing.T) {
	rest := []string{"step", "seconds", "weights", "tensors", "applied_params", "uncorrected", "diagnostics"}
	record := reflect.TypeFor[metrics.Record]()
	for i := range record.NumField() {
		field := record.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		number := field.Type == reflect.TypeFor[metrics.Number]() || field.Type == reflect.TypeFor[*metrics.Number]()
		if number && metrics.Label(name) == name && !slices.Contains(rest, name) {
			t.Errorf("%s has no label", name)
		}
	}
	if got := metrics.Label("hellaswag.acc_norm"); got != "hellaswag.acc_norm" {
		t.Errorf("an unknown name becomes %q", got)
	}
}
