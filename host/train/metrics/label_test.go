package metrics_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/train/metrics"
)

// TestLabel: what is recorded as a number for curves has a name for people, and other names stay.
func TestLabel(t *testing.T) {
	rest := []string{"weights", "tensors", "applied_params", "diagnostics", "total_steps", "silence", "tokens", "steps", "parameters"}
	for _, of := range []reflect.Type{reflect.TypeFor[metrics.Record](), reflect.TypeFor[metrics.Summary]()} {
		for i := range of.NumField() {
			field := of.Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			number := field.Type == reflect.TypeFor[metrics.Number]() || field.Type == reflect.TypeFor[*metrics.Number]() ||
				of == reflect.TypeFor[metrics.Summary]() && (field.Type.Kind() == reflect.Int || field.Type.Kind() == reflect.Int64 || field.Type.Kind() == reflect.Float64)
			if number && metrics.Label(name) == name && !slices.Contains(rest, name) {
				t.Errorf("%s: %s has no label", of, name)
			}
		}
	}
	if got := metrics.Label("hellaswag.acc_norm"); got != "hellaswag.acc_norm" {
		t.Errorf("an unknown name becomes %q", got)
	}
}
