package metrics

import (
	"cmp"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// NumberNames returns the JSON names of the numeric fields of a struct type such as [Record] or
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

// Value is a number in a record.
type Value struct {
	// Name is the JSON name, weights.WEIGHT.NAME for a number of an individual weight, or
	// counts.NAME for a counter of the method.
	Name   string
	Number float64
}

// Values lists the numbers in r in the order of the fields, without those that are left out of
// metrics.jsonl: numbers that were not measured, and zero counts.
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

// Timed reports whether the named number of a record or summary is a time, a speed or a memory
// size, which another run of the same configuration would not reproduce.
func Timed(name string) bool {
	return strings.HasSuffix(name, "seconds") || strings.HasSuffix(name, "per_second") ||
		name == "mfu" || strings.HasSuffix(name, "memory_bytes")
}

// names maps the names of numbers to their labels in figures and tables, and to their TensorBoard
// tags, GROUP/NAME. Numbers that only occur in summaries have no tag.
var names = map[string]struct{ label, tag string }{
	"loss":              {"training loss", "train/loss"},
	"lr":                {"learning rate", "train/learning rate"},
	"divergence":        {"divergence from the teacher", "train/divergence from the teacher"},
	"cross_entropy":     {"cross-entropy", "train/cross-entropy"},
	"grad_norm":         {"norm of the gradient", "train/gradient norm"},
	"distance":          {"distance to the optimum", "train/distance to the optimum"},
	"skipped":           {"steps skipped", "train/skipped steps"},
	"val_loss":          {"validation loss", "validation/loss"},
	"val_ppl":           {"validation perplexity", "validation/perplexity"},
	"tokens":            {"tokens with a loss", "speed/tokens"},
	"tokens_per_second": {"tokens per second", "speed/tokens per second"},
	"flops_per_second":  {"model operations per second", "speed/model FLOP per second"},
	"mfu":               {"share of the device that the model uses", "speed/model FLOP utilization"},
	"memory_bytes":      {"memory, bytes", "speed/memory, bytes"},
	"seconds":           {"seconds of training", "speed/seconds"},
	"lambda":            {"λ", "correction/λ"},
	"strength": {"strength: Σ α·λ so far (CAGE), degree of quantization (PARQ)",
		"correction/strength"},
	"avg_err_norm": {"mean norm of x − Q(x) of a weight", "correction/mean norm of x − Q(x)"},
	"avg_corr_norm": {"mean norm of the correction of a weight",
		"correction/mean norm of λ(x − Q(x))"},
	"applied_params": {"weights that the correction was applied to", "correction/weights corrected"},
	"uncorrected":    {"corrections skipped", "correction/weights left out"},
	"pareto":         {"stationarity, ‖∇f + λ(x − Q(x))‖", "correction/stationarity"},
	"pareto_ste": {"stationarity with the straight-through gradient",
		"correction/stationarity with the gradient at Q(x)"},
	"error_norm2": {"quantization error, ‖x − Q(x)‖²", "quantization/error, squared"},
	"error_rel": {"quantization error, ‖x − Q(x)‖² / ‖x‖²",
		"quantization/error, relative and squared"},
	"flip_rate":         {"share of codes that changed", "codes/share that changed"},
	"coherence":         {"coherence of residuals", "codes/coherence"},
	"coherence_vector":  {"coherence of residuals, as vectors", "codes/coherence of weights"},
	"dwell_mean":        {"mean dwell time, steps", "codes/dwell time, mean"},
	"dwell_median":      {"median dwell time, steps", "codes/dwell time, median"},
	"dwell_p90":         {"dwell time, 90th percentile, steps", "codes/dwell time, ninth decile"},
	"dwell_max":         {"longest dwell time, steps", "codes/dwell time, largest"},
	"dwell_vector_mean": {"mean dwell time of weights, steps", "codes/dwell time of weights, mean"},
	"visits":            {"visits of a coordinate", "codes/visits"},
	"visit_sum":         {"largest residual of a visit, ‖E‖", "codes/largest sum of a visit"},
	"residual_max":      {"largest residual norm of a weight", "codes/largest residual"},

	// Numbers that only occur in summaries.
	"train_loss":               {"training loss", ""},
	"processor_seconds":        {"seconds of processors", ""},
	"peak_memory_bytes":        {"peak memory, bytes", ""},
	"start_seconds":            {"seconds before the first step", ""},
	"plugin_seconds":           {"seconds until the plugins were ready", ""},
	"epochs":                   {"epochs", ""},
	"parameters":               {"parameters", ""},
	"non_embedding_parameters": {"parameters without embeddings", ""},
	"steps":                    {"steps", ""},

	// Numbers of the comparison with a reference model.
	"kl":        {"KL divergence, nats", ""},
	"agreement": {"share of equal likeliest tokens", ""},
}

// Label returns the label of the named number of a record or summary, for figures and tables. It
// returns an unknown name, such as that of an evaluation's metric, unchanged.
func Label(name string) string {
	return cmp.Or(names[name].label, name)
}

// Short formats integers, such as steps and tokens, with all digits and other numbers with six.
func Short(x float64) string {
	if x == math.Trunc(x) && math.Abs(x) < 1e15 {
		return strconv.FormatFloat(x+0, 'f', 0, 64) // +0 turns −0 into 0
	}
	return strconv.FormatFloat(x, 'g', 6, 64)
}

// Configured reports whether the named number of a summary, of any version, repeats the
// configuration.
func Configured(name string) bool {
	return slices.Contains([]string{"total_steps", "lambda", "silence", "strength"}, name)
}
