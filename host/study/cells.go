package study

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/schema"
)

// plan is a cell before its configuration is resolved.
type plan struct {
	labels   map[string]string
	settings []plaintoml.Setting
	quantize *Quantize
	at       string // key in the file: of its single cell, "study.axes" for the grid
}

func (p plan) name(axes []axis) string {
	return strings.Join(Cell{Labels: p.labels}.Of(axisNames(axes)), " · ")
}

// readCells returns the plans of the grid without the excluded cells, then those of single
// cells. It adds new labels of single cells to the axes.
func readCells(study *table, axes []axis, exclude, cells []*table) []plan {
	var excludes []map[string][]string
	for _, t := range exclude {
		where := t.labels(axes, true)
		t.checkLabels(where, axes)
		if len(t.values) == 0 {
			t.report(t.path, `want labels of axes, such as bits = "2"`, "excludes everything")
		}
		excludes = append(excludes, where)
	}
	var plans []plan
	if n := size(axes, nil); n > mostCells {
		study.report(study.key("axes"), fmt.Sprintf("want at most %d", mostCells), "the grid has %.3g cells", n)
		return nil
	}
	for _, p := range grid(axes, nil) {
		if !slices.ContainsFunc(excludes, func(where map[string][]string) bool {
			return len(where) > 0 && Cell{Labels: p.labels}.Matches(where)
		}) {
			p.at = study.key("axes")
			plans = append(plans, p)
		}
	}
	for _, t := range cells {
		for _, p := range readCell(t, axes) {
			if i := slices.IndexFunc(plans, func(o plan) bool { return maps.Equal(o.labels, p.labels) }); i >= 0 {
				t.report(t.path, "want other labels, or leave it out of the grid with [[study.exclude]]", "there are two cells %s", p.name(axes))
				break
			}
			plans = append(plans, p)
		}
	}
	if len(plans) == 0 && len(study.Errs) == 0 { // else there will be cells when they are solved
		study.report(study.path, "want values for every axis, or [[study.cells]]", "the study has no cells")
	}
	return plans
}

// mostCells bounds a study.
const mostCells = 10_000

// size returns the number of cells of a grid, as a float because it may be very large.
func size(axes []axis, fixed map[string]string) float64 {
	n := 1.0
	for _, a := range axes {
		if _, ok := fixed[a.name]; !ok {
			n *= float64(len(a.values))
		}
	}
	return n
}

// grid returns a plan for each combination of labels, the last axis varying fastest. An axis
// with a fixed label has only that one.
func grid(axes []axis, fixed map[string]string) []plan {
	plans := []plan{{labels: map[string]string{}}}
	for _, a := range axes {
		values := a.values
		if label, ok := fixed[a.name]; ok {
			v, _ := a.value(label) // a new label brings no settings
			values = []value{{label, v.settings, v.quantize}}
		}
		var next []plan
		for _, p := range plans {
			for _, v := range values {
				labels := maps.Clone(p.labels)
				labels[a.name] = v.label
				next = append(next, plan{labels: labels, settings: slices.Concat(p.settings, v.settings), quantize: cmp.Or(v.quantize, p.quantize)})
			}
		}
		plans = next
	}
	return plans
}

// readCell reads one of [[study.cells]]: a cell for each combination of the values of the
// axes that its label leaves out.
func readCell(t *table, axes []axis) []plan {
	var labels, set map[string]any
	var rawQuantize any
	t.read(schema.Key{Name: "label", To: &labels, Is: schema.Anything("of labels by axis")}, optional("set", &set), optional("quantize", &rawQuantize))
	settings, quantize, label := t.settings("set", set), t.quantize(rawQuantize), t.below("label", labels)
	if label == nil {
		return nil
	}
	fixed := map[string]string{}
	for name, labels := range label.labels(axes, false) {
		fixed[name] = labels[0]
		if a := find(axes, name); !slices.Contains(a.labels(), labels[0]) {
			a.extra = append(a.extra, labels[0])
		}
	}
	for _, a := range axes {
		if _, ok := fixed[a.name]; !ok && len(a.values) == 0 {
			t.report(label.path, "want a label for it: the axis has no values", "no label of the axis %q", a.name)
		}
	}
	if n := size(axes, fixed); n > mostCells {
		t.report(label.path, fmt.Sprintf("want labels of more axes: at most %d cells", mostCells), "stands for %.3g cells", n)
		return nil
	}
	plans := grid(axes, fixed)
	for i := range plans {
		plans[i].settings = append(plans[i].settings, settings...)
		plans[i].at, plans[i].quantize = t.path, cmp.Or(quantize, plans[i].quantize)
	}
	return plans
}

// resolve returns the cells of plans, and reports each problem of their configurations once.
func (r *reader) resolve(base *plaintoml.Document, plans []plan, axes []axis) []Cell {
	var found problems
	var cells []Cell
	for _, p := range plans {
		cell := Cell{Labels: p.labels, Quantize: p.quantize}
		if p.quantize != nil {
			cell.Set = append(cell.Set, Setting{Key: "quantize", Value: p.quantize.text()})
		}
		for _, s := range p.settings {
			cell.Set = append(cell.Set, Setting{Key: s.Key, Value: s.Text()})
		}
		var err error
		if cell.Config, err = config.Resolve(base, p.settings); err == nil {
			cells = append(cells, cell)
			continue
		}
		found.add(err, p.name(axes))
	}
	r.Errs = append(r.Errs, found.list(len(plans))...)
	return cells
}
