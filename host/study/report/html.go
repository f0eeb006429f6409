package report

// The report as one HTML file needs no network or other file, and works in any browser. Without
// JavaScript, only sorting, filtering, and values under the pointer are missing. All text is
// escaped by the template. Curves are drawn by uPlot; its files, as published on npm, are in
// page/uplot.

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/study/figure"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/internal/lists"
)

// Chart holds the data of a figure of curves, in JSON.
type Chart struct {
	X      string  `json:"x"` // labels of the axes
	Y      string  `json:"y"`
	LogX   bool    `json:"logx"`
	LogY   bool    `json:"logy"`
	YMin   float64 `json:"ymin,omitempty"` // range of Y; if YMax is 0, the range of the curves
	YMax   float64 `json:"ymax,omitempty"`
	Series []Curve `json:"series"`
}

// Curve is a curve in a chart, with a band around it. All slices have the same length; a null
// breaks the curve.
type Curve struct {
	Name string     `json:"name"`
	X    []float64  `json:"x"`
	Y    []*float64 `json:"y"`
	Low  []*float64 `json:"low"`  // empty: no band
	High []*float64 `json:"high"` // empty: no band
	// Color is the index, from 1, of the curve's colour in the list of colours; 0 means that the
	// curve's own index selects it.
	Color int        `json:"color,omitempty"`
	Dash  int        `json:"dash,omitempty"` // index of the line style, likewise
	Raw   []*float64 `json:"raw,omitempty"`  // Y before smoothing; empty: Y is not smoothed
}

// Finite returns a number for JSON, or nil for NaN and ±∞, which JSON cannot represent.
func Finite(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}

// Chart returns the data of a figure of curves, for values under the pointer; otherwise nil.
func (f Figure) Chart() *Chart {
	const maxHover = 600 // points of a curve
	c, ok := f.Picture.(*figure.Chart)
	if !ok || f.Kind != study.Curves {
		return nil
	}
	out := &Chart{
		X: c.X.Label, Y: c.Y.Label, LogX: c.X.Log, LogY: c.Y.Log, YMin: c.Y.Min, YMax: c.Y.Max,
		Series: []Curve{},
	}
	if low, high, ok := c.Span(); ok && c.Y.Log && out.YMax == 0 {
		out.YMin, out.YMax = low, high // as in the SVG, where bands do not extend it
	}
	for _, s := range c.Series {
		none := []*float64{} // null would not be an array
		curve := Curve{Name: s.Name, X: []float64{}, Y: none, Low: none, High: none}
		hasBand := func(p figure.Point) bool { return p.Minus != 0 || p.Plus != 0 }
		banded := slices.ContainsFunc(s.Points, hasBand)
		for _, p := range figure.Thin(s.Points, maxHover, func(p figure.Point) float64 { return p.Y }) {
			curve.X, curve.Y = append(curve.X, p.X), append(curve.Y, Finite(p.Y))
			if banded {
				curve.Low = append(curve.Low, Finite(p.Y-p.Minus))
				curve.High = append(curve.High, Finite(p.Y+p.Plus))
			}
		}
		out.Series = append(out.Series, curve)
	}
	return out
}

// RunTable lists all cells with the metrics of tables and evaluations, and the final losses.
func (r *Report) RunTable() grid {
	known, shown := map[string]bool{}, map[string]bool{}
	for _, run := range r.Runs {
		for name := range run.Summary {
			known[name] = true
			shown[name] = strings.Contains(name, ".") // a metric of an evaluation
		}
	}
	for _, t := range r.Tables {
		shown[t.Metric] = true
		if t.Best != nil {
			shown[t.Best.Metric] = true
		}
	}
	for _, name := range []string{"train_loss", "val_loss", "val_ppl", "distance"} {
		shown[name] = true
	}
	maps.DeleteFunc(shown, func(name string, show bool) bool { return !show || !known[name] })
	names := slices.Sorted(maps.Keys(shown))

	axes := lists.Map(r.Axes, func(a study.Axis) string { return a.Name })
	out := grid{Title: "Runs", Head: slices.Concat([]string{"run"}, axes, []string{"state"})}
	out.Texts = len(out.Head)
	out.Head = append(out.Head, lists.Map(names, metrics.Label)...)
	order := []study.State{
		study.Done, study.Unevaluated, study.Running, study.Interrupted,
		study.Failed, study.Stale, study.Missing,
	}
	for i, run := range r.Runs {
		link := fmt.Sprintf("run-%d", i+1)
		row := []cell{{Text: fmt.Sprint(i + 1), Head: true, Key: sortKey(float64(i)), Link: link}}
		row = append(row, labelCells(r.Axes, axes, run.Labels)...)
		state := slices.Index(order, run.State)
		row = append(row, cell{Text: string(run.State), Key: sortKey(float64(state))})
		for _, name := range names {
			c := cell{Text: absent}
			if v, ok := run.Summary[name]; ok {
				c = cell{Text: minus(metrics.Short(v)), Key: sortKey(v)}
			}
			row = append(row, c)
		}
		out.Rows = append(out.Rows, row)
	}
	return out
}

//go:embed page
var pageFiles embed.FS

var pageLayout = template.Must(template.New("page.gohtml").Funcs(template.FuncMap{
	"css": readAssets[template.CSS],
	"js":  readAssets[template.JS],
	"svg": func(f Figure) (template.HTML, error) {
		var b bytes.Buffer
		if err := figure.Draw(&b, figure.SVG, f.Picture, figure.Options{}); err != nil {
			return "", fmt.Errorf("figure %s: %w", f.Title, err)
		}
		svg := b.Bytes() // its text was escaped when it was drawn
		return template.HTML(bytes.TrimSpace(svg[max(0, bytes.Index(svg, []byte("<svg"))):])), nil
	},
	"key": func(x *float64) string { return strconv.FormatFloat(*x, 'g', -1, 64) },
	"inc": func(i int) int { return i + 1 },
	// A colour scale from light to dark must not be inverted in dark mode.
	"paper":   func(f Figure) bool { return f.Kind == study.Heatmap },
	"join":    join,
	"nothing": func() string { return nothingToDraw },
}).ParseFS(pageFiles, "page/page.gohtml"))

// Assets returns the files that report pages use, for other pages with the same style.
func Assets() fs.FS {
	assets, err := fs.Sub(pageFiles, "page")
	if err != nil {
		panic(err) // the name is valid
	}
	return assets
}

func readAssets[T ~string](names ...string) (T, error) {
	var all []byte
	for _, name := range names {
		text, err := pageFiles.ReadFile("page/" + name)
		if err != nil {
			return "", err
		}
		all = append(append(all, text...), '\n')
	}
	return T(all), nil
}

// HTML returns the report as an HTML page.
func (r *Report) HTML() ([]byte, error) {
	var b bytes.Buffer
	err := pageLayout.Execute(&b, r)
	return b.Bytes(), err
}
