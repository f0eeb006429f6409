package metrics

import (
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// NumberNames lists the JSON names of the numeric fields of a struct such as [Record] or
// [Summary], including those of embedded structs.
func NumberNames(t reflect.Type) []string {
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		kind := f.Type.Kind()
		if kind == reflect.Pointer {
			kind = f.Type.Elem().Kind()
		}
		switch kind {
		case reflect.Int, reflect.Int64, reflect.Float64:
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			names = append(names, name)
		}
	}
	return names
}

// Value is one number of a record, with its name.
type Value struct {
	Name   string // as in metrics.jsonl; for a single weight weights.WEIGHT.NAME, and counts.NAME for counters of the method
	Number float64
}

// Values lists the numbers that were measured at the step, in the order of the fields. Zero counts
// are left out, as in metrics.jsonl.
func (r Record) Values() []Value {
	list := valuesOf("", r)
	for _, name := range slices.Sorted(maps.Keys(r.Counts)) {
		list = append(list, Value{countsPrefix + name, float64(r.Counts[name])})
	}
	for _, weight := range slices.Sorted(maps.Keys(r.Weights)) {
		list = append(list, valuesOf("weights."+weight+".", r.Weights[weight])...)
	}
	return list
}

func valuesOf(prefix string, of any) (list []Value) {
	v := reflect.ValueOf(of)
	for i := range v.NumField() {
		name, option, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		field := v.Field(i)
		if option == "omitempty" && field.IsZero() {
			continue
		}
		if field.Kind() == reflect.Pointer {
			field = field.Elem()
		}
		switch {
		case field.CanFloat():
			list = append(list, Value{prefix + name, field.Float()})
		case field.CanInt():
			list = append(list, Value{prefix + name, float64(field.Int())})
		}
	}
	return list
}

// Timed reports whether a number of a record or a summary is a time, a speed or a memory size,
// which another run of the same configuration would not reproduce.
func Timed(name string) bool {
	return strings.HasSuffix(name, "seconds") || strings.HasSuffix(name, "per_second") || name == "mfu" || name == "memory_bytes"
}

// labels maps the names of numbers to their labels in figures and tables.
var labels = map[string]string{
	"loss": "training loss", "train_loss": "training loss", "val_loss": "validation loss",
	"val_ppl": "validation perplexity", "divergence": "divergence from the teacher", "cross_entropy": "cross-entropy",
	"error_rel": "quantization error, ‖x − Q(x)‖² / ‖x‖²", "error_norm2": "quantization error, ‖x − Q(x)‖²",
	"distance": "distance to the optimum", "lambda": "λ", "strength": "strength of the method, if it is not CAGE", "lr": "learning rate", "grad_norm": "norm of the gradient",
	"pareto": "stationarity, ‖∇f + λ(x − Q(x))‖", "pareto_ste": "stationarity with the straight-through gradient",
	"flip_rate": "share of codes that changed", "dwell_mean": "mean dwell time, steps", "dwell_median": "median dwell time, steps",
	"dwell_p90": "dwell time, 90th percentile, steps", "dwell_max": "longest dwell time, steps", "dwell_vector_mean": "mean dwell time of weights, steps",
	"coherence": "coherence of residuals", "coherence_vector": "coherence of residuals, as vectors",
	"residual_max": "largest residual norm of a weight", "visit_sum": "largest residual of a visit, ‖E‖", "visits": "visits of a coordinate",
	"avg_err_norm": "mean norm of x − Q(x) of a weight", "avg_corr_norm": "mean norm of the correction of a weight",
	"applied_params": "weights that the correction was applied to",
	"tokens":         "tokens", "tokens_per_second": "tokens per second", "flops_per_second": "model operations per second",
	"mfu": "share of the device that the model uses", "memory_bytes": "memory, bytes", "skipped": "steps left out",
	"uncorrected": "corrections left out", "seconds": "seconds of training", "start_seconds": "seconds before the first step",
	"plugin_seconds": "seconds until the plugins were ready", "epochs": "epochs",
	"parameters": "parameters", "non_embedding_parameters": "parameters without embeddings", "steps": "steps",
}

// Label returns the label of a number, of a record or of a summary, for figures and
// tables. An unknown name, such as that of an evaluation's metric, is its own label.
func Label(name string) string {
	if label, ok := labels[name]; ok {
		return label
	}
	return name
}

// Short formats a number with six digits, but an integer with all digits, for steps and tokens.
func Short(x float64) string {
	if x == math.Trunc(x) && math.Abs(x) < 1e15 {
		return strconv.FormatFloat(x+0, 'f', 0, 64) // +0 turns −0 into 0
	}
	return strconv.FormatFloat(x, 'g', 6, 64)
}

// Configured reports whether a number of a summary, of any version, repeats the configuration.
func Configured(name string) bool {
	return slices.Contains([]string{"total_steps", "lambda", "silence"}, name)
}
