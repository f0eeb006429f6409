package study

import (
	"reflect"
	"strings"

	"github.com/cage-qat/cage/host/metrics"
	"github.com/cage-qat/cage/host/train"
)

// SummaryMetrics names the numbers that summary.json may hold, but for times and
// speeds: a report is a function of results that a second run would have, too.
func SummaryMetrics() []string { return numbers(reflect.TypeFor[train.Summary]()) }

// RecordMetrics names the numbers that a line of metrics.jsonl may hold, but for times
// and speeds.
func RecordMetrics() []string { return numbers(reflect.TypeFor[metrics.Record]()) }

// numbers lists the JSON names of the numeric fields of a struct, embedded ones included.
func numbers(t reflect.Type) []string {
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		kind := f.Type.Kind()
		if kind == reflect.Pointer {
			kind = f.Type.Elem().Kind()
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if timed(name) {
			continue
		}
		switch kind {
		case reflect.Int, reflect.Int64, reflect.Float64:
			names = append(names, name)
		}
	}
	return names
}

// timed tells whether a metric is a time or a speed.
func timed(name string) bool {
	return strings.HasSuffix(name, "seconds") || strings.HasSuffix(name, "per_second")
}
