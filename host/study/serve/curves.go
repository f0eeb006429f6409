package serve

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/study/report"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
)

// panel is a chart of one or several numbers of the records.
type panel struct {
	Name    string // in addresses: the first of the metrics
	Title   string
	metrics []string
	log     bool // the scale is logarithmic at first
	noisy   bool // the first of the metrics is smoothed
}

// panels are all charts, in their order.
var panels = []panel{
	{"loss", "Loss, nats per token", []string{"loss", "val_loss"}, false, true},
	{"cross_entropy", "Loss without the teacher, nats per token", []string{"cross_entropy", "val_loss"}, false, true},
	{"divergence", "Divergence from the teacher, nats per token", []string{"divergence"}, false, true},
	{"error_rel", "Quantization error, Σ‖x − Q(x)‖² / Σ‖x‖²", []string{"error_rel"}, true, false},
	{"lambda", "Strength of the correction, λ", []string{"lambda"}, false, false},
	{"strength", "Strength of the method", []string{"strength"}, false, false},
	{"lr", "Learning rate", []string{"lr"}, false, false},
	{"grad_norm", "Norm of the gradient", []string{"grad_norm"}, true, true},
	{"pareto", "Stationarity, ‖∇f + λ(x − Q(x))‖", []string{"pareto", "pareto_ste"}, true, false},
	{"flip_rate", "Codes that changed since the sample before, fraction", []string{"flip_rate"}, true, false},
	{"dwell_mean", "Dwell times of codes, steps", []string{"dwell_mean", "dwell_median", "dwell_p90", "dwell_max"}, true, false},
	{"coherence", "Coherence of residuals", []string{"coherence", "coherence_vector"}, false, false},
	{"residual_max", "Largest residual norm of a weight, ‖e‖", []string{"residual_max", "visit_sum"}, true, false},
	{"distance", "Distance to the optimum", []string{"distance"}, true, false},
	{"tokens_per_second", "Tokens per second", []string{"tokens_per_second"}, false, true},
	{"flops_per_second", "Floating-point operations of the model per second", []string{"flops_per_second"}, false, true},
	{"mfu", "Share of the device that the model uses (MFU)", []string{"mfu"}, false, true},
	{"memory_bytes", "Memory of the process, bytes", []string{"memory_bytes"}, false, false},
	{"skipped", "Steps left out", []string{"skipped", "uncorrected"}, false, false},
}

// chartColors is how many colours chart.js has.
const chartColors = 7

// maxCurves limits the runs whose curves one request can ask for.
const maxCurves = 16

// curvesAnswer is the JSON of curves.
type curvesAnswer struct {
	Charts  []chartView `json:"charts"`
	Partial bool        `json:"partial"` // there is more to be read: ask again at once
	Wrong   string      `json:"wrong"`   // what could not be read, "" for nothing
}

type chartView struct {
	Panel string       `json:"panel"`
	Title string       `json:"title"`
	Chart report.Chart `json:"chart"`
}

// curves answers with the curves of the named runs, in one panel or in all. A run that does
// not exist, or no longer, is reported beside the curves of the others.
func (s *Server) curves(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	if len(q["run"]) > maxCurves {
		return refuse(http.StatusBadRequest, "curves of %d runs, want at most %d", len(q["run"]), maxCurves)
	}
	chosen := panels
	if name := q.Get("panel"); name != "" {
		chosen = slices.DeleteFunc(slices.Clone(panels), func(p panel) bool { return p.Name != name })
	}
	if len(chosen) == 0 {
		return refuse(http.StatusNotFound, "there is no panel %q", q.Get("panel"))
	}
	runs, missing, err := s.find(q["run"])
	if err != nil {
		return err
	}
	if len(runs) == 0 && len(missing) > 0 {
		return refuse(http.StatusNotFound, "there is no run %q", missing[0])
	}
	out := curvesAnswer{Charts: []chartView{}}
	if len(missing) > 0 {
		out.Wrong = fmt.Sprintf("there is no run %q", missing[0])
	}
	read := make([]*runLog, len(runs))
	for i, run := range runs {
		log, more, err := s.logs.read(run.Dir)
		read[i], out.Partial = log, out.Partial || more
		if err != nil {
			out.Wrong = err.Error()
		}
	}
	taught := slices.ContainsFunc(read, func(l *runLog) bool { return l.has("cross_entropy") })
	for _, p := range chosen {
		if taught {
			if p.Name == "loss" {
				p.metrics = p.metrics[:1] // with a teacher, the training loss is not comparable with the validation loss
			}
		} else if p.Name == "cross_entropy" {
			continue // it has nothing that the loss has not
		}
		if c := p.chart(runs, read); len(c.Series) > 0 {
			out.Charts = append(out.Charts, chartView{p.Name, p.Title, c})
		}
	}
	body, err := json.Marshal(out)
	if err != nil {
		return err
	}
	return send(w, r, "application/json", body)
}

func (p panel) chart(runs []*rundir.Run, read []*runLog) report.Chart {
	out := report.Chart{X: "step", Y: p.axis(), LogY: p.log, Series: []report.Curve{}}
	names := legendNames(runs)
	for nth, metric := range p.metrics {
		for i := range runs {
			points, smoothed := read[i].points(metric)
			if len(points) == 0 {
				continue
			}
			name := metrics.Label(metric)
			if len(runs) > 1 {
				name = names[i]
				if metric != p.metrics[0] {
					name += ", " + metrics.Label(metric)
				}
			}
			c := pageCurve(name, points)
			if len(runs) > 1 {
				// The colour tells the run and the kind of line the metric, others for runs of the
				// same colour.
				c.Color, c.Dash = i+1, 1+nth+i/chartColors*len(p.metrics)
			}
			if p.noisy && metric == p.metrics[0] && smoothed != nil {
				c.Raw, c.Y = c.Y, make([]*float64, len(smoothed))
				for i, v := range smoothed {
					c.Y[i] = report.Finite(v)
				}
				if len(runs) == 1 {
					c.Name += ", smoothed; faint: as recorded"
				}
			}
			out.Series = append(out.Series, c)
		}
	}
	return out
}

// legendNames returns the names of runs without the directory that all of them are in, because a
// legend has little room.
func legendNames(runs []*rundir.Run) []string {
	names := make([]string, len(runs))
	for i, r := range runs {
		names[i] = r.Dir
	}
	common := commonDir(names)
	for i, name := range names {
		names[i] = filepath.ToSlash(strings.TrimPrefix(name, common))
	}
	return names
}

// maxAxisLabel is how many bytes of a label have room beside a chart of a run.
const maxAxisLabel = 36

// axis labels the vertical axis, which has no room for formulas, or for a long name and its unit:
// the title says it.
func (p panel) axis() string {
	name, unit, found := strings.Cut(p.Title, ", ")
	switch {
	case len(unit) > len("nats per token"): // it is a formula
		return name
	case found && len(p.Title) > maxAxisLabel:
		return unit
	}
	return p.Title
}

func pageCurve(name string, points []point) report.Curve {
	c := report.Curve{Name: name, X: make([]float64, len(points)), Y: make([]*float64, len(points)), Low: []*float64{}, High: []*float64{}}
	for i, p := range points {
		c.X[i], c.Y[i] = float64(p.Step), report.Finite(p.Value)
	}
	return c
}
