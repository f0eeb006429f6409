package study

import (
	"reflect"
	"slices"

	"github.com/cage-qat/cage/host/train/metrics"
)

// SummaryMetrics names the numbers that summary.json may hold, except times and speeds: a
// report contains only results that a second run would reproduce.
func SummaryMetrics() []string { return numbers(reflect.TypeFor[metrics.Summary]()) }

// RecordMetrics names the numbers that a line of metrics.jsonl may hold, except times and
// speeds.
func RecordMetrics() []string { return numbers(reflect.TypeFor[metrics.Record]()) }

// numbers lists the numeric fields of a struct but for times and speeds.
func numbers(t reflect.Type) []string {
	return slices.DeleteFunc(metrics.NumberNames(t), metrics.Timed)
}
