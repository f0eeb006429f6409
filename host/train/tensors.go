package train

import (
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/resources"
)

// addSpeed fills in speed and memory. Each call measures the speed since the one before.
func (r *run) addSpeed(rec *metrics.Record) {
	tokens, steps := r.display.speed(*rec)
	if !r.cfg.Model.Language() {
		return
	}
	rec.TokensPerSecond = metrics.Some(tokens)
	// Not by tokens: those that are no targets are computed as well.
	flops := steps * float64(r.cfg.Train.Accumulate) * r.model.StepFLOPs(r.cfg.Train.Batch, r.cfg.Model.Context)
	rec.FLOPSPerSecond = metrics.Some(flops)
	if peak := r.cfg.Device.PeakTFLOPS; peak > 0 {
		rec.MFU = metrics.Some(flops / (peak * 1e12))
	}
	if bytes := resources.Memory(); bytes > 0 {
		rec.MemoryBytes = metrics.Some(float64(bytes))
	}
}

// addTensors fills in the numbers of single tensors. They are measured in every step; only
// to record them is a choice.
func (r *run) addTensors(rec *metrics.Record, set step.Settings, res step.Result) {
	if rec.Weights == nil {
		rec.Weights = map[string]metrics.WeightMeasures{}
	}
	quantized := 0
	for i, t := range r.Programs.Tensors {
		w := rec.Weights[t.Name]
		if i < len(res.GradNorms) {
			w.GradNorm = metrics.Some(res.GradNorms[i])
		}
		w.LR = metrics.Some(set.Rate * t.RateFactor)
		if _, ok := r.Programs.Weights[t.Name]; ok {
			if quantized < len(res.ErrorNorm2) {
				w.ErrorRel = relative(res.ErrorNorm2[quantized], res.ValueNorm2[quantized])
			}
			quantized++
		}
		rec.Weights[t.Name] = w
	}
}
