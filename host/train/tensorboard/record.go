package tensorboard

import (
	"strings"
	"time"

	"github.com/cage-qat/cage/host/train/metrics"
)

// tags are the names that the numbers of a record have in TensorBoard, which draws those of a group together. Those that are
// not here keep their name, in the group "other".
var tags = map[string]string{
	"loss":              "train/loss",
	"lr":                "train/learning rate",
	"divergence":        "train/divergence from the teacher",
	"cross_entropy":     "train/cross-entropy",
	"grad_norm":         "train/gradient norm",
	"distance":          "train/distance to the optimum",
	"skipped":           "train/skipped steps",
	"val_loss":          "validation/loss",
	"val_ppl":           "validation/perplexity",
	"tokens":            "speed/tokens",
	"tokens_per_second": "speed/tokens per second",
	"flops_per_second":  "speed/model FLOP per second",
	"mfu":               "speed/model FLOP utilization",
	"memory_bytes":      "speed/memory, bytes",
	"seconds":           "speed/seconds",
	"lambda":            "correction/λ",
	"avg_err_norm":      "correction/mean norm of x − Q(x)",
	"avg_corr_norm":     "correction/mean norm of λ(x − Q(x))",
	"applied_params":    "correction/weights corrected",
	"uncorrected":       "correction/weights left out",
	"pareto":            "correction/stationarity",
	"pareto_ste":        "correction/stationarity with the gradient at Q(x)",
	"error_norm2":       "quantization/error, squared",
	"error_rel":         "quantization/error, relative and squared",
	"flip_rate":         "codes/share that changed",
	"coherence":         "codes/coherence",
	"coherence_vector":  "codes/coherence of weights",
	"dwell_mean":        "codes/dwell time, mean",
	"dwell_median":      "codes/dwell time, median",
	"dwell_p90":         "codes/dwell time, ninth decile",
	"dwell_max":         "codes/dwell time, largest",
	"dwell_vector_mean": "codes/dwell time of weights, mean",
	"visits":            "codes/visits",
	"visit_sum":         "codes/largest sum of a visit",
	"residual_max":      "codes/largest residual",
}

// Of returns the numbers of a record as scalars. The names of those of single weights contain the name of the weight.
func Of(r metrics.Record) []Scalar {
	var list []Scalar
	for _, v := range r.Values() {
		if v.Name != "step" {
			list = append(list, Scalar{tagOf(v.Name), v.Number})
		}
	}
	return list
}

func tagOf(name string) string {
	if weight, ok := strings.CutPrefix(name, "weights."); ok {
		at := strings.LastIndexByte(weight, '.')
		_, short, _ := strings.Cut(tagOf(weight[at+1:]), "/")
		return "weights, " + short + "/" + weight[:at]
	}
	if tag, ok := tags[name]; ok {
		return tag
	}
	return "other/" + name
}

// Configuration appends the configuration of a run, in TOML.
func Configuration(w *Writer, toml string, at time.Time) error {
	return w.Text("configuration", "    "+strings.ReplaceAll(strings.TrimRight(toml, "\n"), "\n", "\n    ")+"\n", at)
}
