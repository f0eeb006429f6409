package serve

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/study/report"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/lists"
)

// panel is a chart of one or more numbers in the records.
type panel struct {
	Title   string
	metrics []string
	log     bool // the scale is logarithmic initially
	noisy   bool // the first of the metrics is smoothed
}

// Name returns the identifier of the panel in URLs.
func (p panel) Name() string { return p.metrics[0] }

// panels lists the charts in the order of the page.
var panels = []panel{
	{"Loss, nats per token", []string{"loss", "val_loss"}, false, true},
	{"Loss without the teacher, nats per token", []string{"cross_entropy", "val_loss"}, false, true},
	{"Divergence from the teacher, nats per token", []string{"divergence"}, false, true},
	{"Quantization error, Σ‖x − Q(x)‖² / Σ‖x‖²", []string{"error_rel"}, true, false},
	{"Weight of the correction, λ", []string{"lambda"}, false, false},
	{"Strength: Σ α·λ so far (CAGE), degree of quantization (PARQ)",
		[]string{"strength"}, false, false},
	{"Learning rate", []string{"lr"}, false, false},
	{"Norm of the gradient", []string{"grad_norm"}, true, true},
	{"Stationarity, ‖∇f + λ(x − Q(x))‖", []string{"pareto", "pareto_ste"}, true, false},
	{"Codes that changed since the sample before, fraction", []string{"flip_rate"}, true, false},
	{"Dwell times of codes, steps",
		[]string{"dwell_mean", "dwell_median", "dwell_p90", "dwell_max"}, true, false},
	{"Coherence of residuals", []string{"coherence", "coherence_vector"}, false, false},
	{"Largest residual norm of a weight, ‖e‖", []string{"residual_max", "visit_sum"}, true, false},
	{"Distance to the optimum", []string{"distance"}, true, false},
	{"Tokens per second", []string{"tokens_per_second"}, false, true},
	{"Floating-point operations of the model per second", []string{"flops_per_second"}, false, true},
	{"Share of the device that the model uses (MFU)", []string{"mfu"}, false, true},
	{"Memory of the process, bytes", []string{"memory_bytes"}, false, false},
	{"Steps left out", []string{"skipped", "uncorrected"}, false, false},
}

// maxCurves is the maximum number of runs whose curves a single request can ask for.
const maxCurves = 16

type curvesResponse struct {
	Charts  []chartView `json:"charts"`
	Partial bool        `json:"partial"` // there is more to read: ask again at once
	Wrong   string      `json:"wrong"`   // the error of reading; "" if there is none
}

type chartView struct {
	Panel string       `json:"panel"`
	Title string       `json:"title"`
	Chart report.Chart `json:"chart"`
}

// curves responds with the curves of the given runs, in one panel or in all. Runs that do not exist
// (any more) are reported along with the curves of the others.
func (s *Server) curves(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	if len(q["run"]) > maxCurves {
		return clientErrorf(http.StatusBadRequest, "got %d runs, want at most %d",
			len(q["run"]), maxCurves)
	}
	chosen := slices.DeleteFunc(slices.Clone(panels), func(p panel) bool {
		return q.Has("panel") && p.Name() != q.Get("panel")
	})
	if len(chosen) == 0 {
		return clientErrorf(http.StatusNotFound, "there is no panel %q", q.Get("panel"))
	}
	runs, missing, err := s.find(q["run"])
	if err != nil {
		return err
	}
	if len(runs) == 0 && len(missing) > 0 {
		return clientErrorf(http.StatusNotFound, "there is no run %q", missing[0])
	}
	out := curvesResponse{Charts: []chartView{}}
	if len(missing) > 0 {
		out.Wrong = fmt.Sprintf("there is no run %q", missing[0])
	}
	read := make([]*runLog, len(runs))
	hasTeacher := false
	for i, run := range runs {
		log := s.logs.get(run.Dir)
		log.mu.Lock()
		more, err := log.follower.Next(bytesAtOnce)
		hasTeacher = hasTeacher || log.curves["cross_entropy"] != nil
		log.mu.Unlock()
		if read[i], out.Partial = log, out.Partial || more; err != nil {
			out.Wrong = err.Error()
		}
	}
	for _, p := range chosen {
		if hasTeacher && p.Name() == "loss" { // then the validation loss is another quantity
			p.metrics = p.metrics[:1]
		} else if !hasTeacher && p.Name() == "cross_entropy" {
			continue // it equals the loss
		}
		if c := p.chart(runs, read); len(c.Series) > 0 {
			out.Charts = append(out.Charts, chartView{p.Name(), p.Title, c})
		}
	}
	body, err := json.Marshal(out)
	if err != nil {
		return err
	}
	return send(w, r, "application/json", body)
}

func (p panel) chart(runs []*rundir.Run, read []*runLog) report.Chart {
	const colors = 7        // as in chart.js
	const maxAxisLabel = 36 // bytes of the longest label that fits beside a chart
	out := report.Chart{X: "step", Y: p.Title, LogY: p.log, Series: []report.Curve{}}
	// Formulas, and long names with units, do not fit beside the axis; the title shows them.
	if name, unit, found := strings.Cut(p.Title, ", "); len(unit) > len("nats per token") {
		out.Y = name
	} else if found && len(p.Title) > maxAxisLabel {
		out.Y = unit
	}
	dirs := lists.Map(runs, func(r *rundir.Run) string { return r.Dir })
	names := rundir.Names(dirs)
	for nth, metric := range p.metrics {
		for i := range runs {
			read[i].mu.Lock()
			recorded := read[i].curves[metric]
			c := report.Curve{Name: metrics.Label(metric), Low: []*float64{}, High: []*float64{}}
			var smoothed []float64
			if recorded != nil {
				points := recorded.points()
				smoothed = recorded.smoothed(points)
				for _, p := range points {
					c.X, c.Y = append(c.X, float64(p.step)), append(c.Y, report.Finite(p.value))
				}
			}
			read[i].mu.Unlock()
			if recorded == nil {
				continue
			}
			if len(runs) > 1 {
				if c.Name = names[i]; nth > 0 {
					c.Name += ", " + metrics.Label(metric)
				}
				// The colour identifies the run, and the dash pattern the metric. Runs with the same colour
				// have different patterns.
				c.Color, c.Dash = i+1, 1+nth+i/colors*len(p.metrics)
			}
			if p.noisy && nth == 0 && smoothed != nil {
				c.Raw, c.Y = c.Y, lists.Map(smoothed, report.Finite)
				if len(runs) == 1 {
					c.Name += ", smoothed; faint: as recorded"
				}
			}
			out.Series = append(out.Series, c)
		}
	}
	return out
}
