package metrics

import (
	"math"
	"strconv"
)

// labels are what records and results are called in pictures and tables.
var labels = map[string]string{
	"loss": "training loss", "train_loss": "training loss", "val_loss": "validation loss",
	"val_ppl": "validation perplexity", "divergence": "divergence from the teacher", "cross_entropy": "cross-entropy",
	"error_rel": "quantization error, ‖x − Q(x)‖² / ‖x‖²", "error_norm2": "quantization error, ‖x − Q(x)‖²",
	"distance": "distance to the optimum", "lambda": "λ", "lr": "learning rate", "grad_norm": "norm of the gradient",
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

// Short formats a number with six digits, but a whole number with all of its digits, since every step or token counts.
func Short(x float64) string { return written(x, 6) }

// Exact formats a number with all of its digits. Whole numbers have no exponent, which some programs do not accept
// where they expect a step.
func Exact(x float64) string { return written(x, -1) }

func written(x float64, digits int) string {
	if x == math.Trunc(x) && math.Abs(x) < 1e15 {
		return strconv.FormatFloat(x+0, 'f', 0, 64) // +0 turns −0 into 0
	}
	return strconv.FormatFloat(x, 'g', digits, 64)
}
