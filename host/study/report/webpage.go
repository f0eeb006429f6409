package report

// The report as one HTML file needs no network, no other file, and no particular browser. Without
// JavaScript, all that is missing is sorting, filtering, and values under the pointer. All texts
// are escaped by the template. Curves are drawn by uPlot, whose files, as published on npm, are in
// the directory page/uplot.

import (
	"bytes"
	"embed"
	"html/template"
	"io/fs"
	"math"
	"strconv"
)

// webPage is the content of the page, from top to bottom.
type webPage struct {
	Title    string
	Summary  string // a sentence shown below the title
	Tables   []webTable
	Figures  []webFigure
	Failures []webFailure
	Runs     webRuns
}

// webTable is a table whose columns can be sorted.
type webTable struct {
	Title string
	Head  [][]heading // lines of headings; those in the last line sort
	Rows  [][]webCell
	Notes []string
	// Below is a table that belongs to this one; nil if there is none.
	Below *webTable
}

// heading is a heading above one or more columns.
type heading struct {
	Label   string
	Columns int
	Text    bool // the column contains texts, which are left-aligned
}

// webCell is a cell of a table.
type webCell struct {
	Text string
	Note string   // smaller text, below the text
	Sort *float64 // value by which the column is sorted; nil: at the end
	Head bool     // whether it names its row
	Bold bool
	Left bool   // left-aligned, as texts are
	Link string // the ID of an element of the page
}

// sortKey makes a number a value to sort by; NaN is sorted to the end.
func sortKey(x float64) *float64 {
	if math.IsNaN(x) {
		return nil
	}
	return &x
}

// Finite returns a number for JSON, which has only finite ones: nil for NaN and the infinities.
func Finite(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}

// webFigure is a picture with its title.
type webFigure struct {
	Title string
	SVG   []byte // as written by host/study/figure; empty: nothing to draw
	Notes []string
	// Paper keeps the picture on a light background in dark mode. It is for pictures whose colours
	// are ordered from light to dark, which must not be inverted.
	Paper bool
	Chart *Chart // values to show under the pointer; nil: the picture alone
}

// Chart is a figure of curves in the form of numbers.
type Chart struct {
	X      string  `json:"x"` // labels of the axes
	Y      string  `json:"y"`
	LogX   bool    `json:"logx"`
	LogY   bool    `json:"logy"`
	YMin   float64 `json:"ymin,omitempty"` // range of Y; if YMax is 0, that of the curves
	YMax   float64 `json:"ymax,omitempty"`
	Series []Curve `json:"series"`
}

// Curve is a curve in a chart, with a band around it. All slices have the same length; a
// null breaks the curve.
type Curve struct {
	Name string     `json:"name"`
	X    []float64  `json:"x"`
	Y    []*float64 `json:"y"`
	Low  []*float64 `json:"low"`  // empty: no band
	High []*float64 `json:"high"` // empty: no band
	// Color is the number of the colour among all colours of curves, from 1; 0: by its
	// place among the curves.
	Color int        `json:"color,omitempty"`
	Dash  int        `json:"dash,omitempty"` // number of the line style, in the same way
	Raw   []*float64 `json:"raw,omitempty"`  // what Y was smoothed from, in which case there is no band; empty: Y is as recorded
}

// webFailure is a cell that ended in an error.
type webFailure struct{ Name, Err string }

// webRuns lists all cells of the study.
type webRuns struct {
	Table       webTable
	Details     []webDetail
	Provenances []string // texts that several details share
}

// webDetail is what is known about one cell.
type webDetail struct {
	ID         string // used in links
	Name       string
	State      string
	Settings   []string // what it changes in the base
	Config     string
	Provenance int // index in Provenances; -1: none
}

//go:embed page
var pageFiles embed.FS

var pageLayout = template.Must(template.New("page.gohtml").Funcs(template.FuncMap{
	"css": func(names ...string) (template.CSS, error) { s, err := readAssets(names); return template.CSS(s), err },
	"js":  func(names ...string) (template.JS, error) { s, err := readAssets(names); return template.JS(s), err },
	"svg": svgElement,
	"key": func(x *float64) string { return strconv.FormatFloat(*x, 'g', -1, 64) },
	"inc": func(i int) int { return i + 1 },
}).ParseFS(pageFiles, "page/page.gohtml"))

// Assets returns the files that pages are made of, for other pages with the same look.
func Assets() fs.FS {
	assets, err := fs.Sub(pageFiles, "page")
	if err != nil {
		panic(err) // the name is valid
	}
	return assets
}

func readAssets(names []string) (string, error) {
	var all []byte
	for _, name := range names {
		text, err := pageFiles.ReadFile("page/" + name)
		if err != nil {
			return "", err
		}
		all = append(append(all, text...), '\n')
	}
	return string(all), nil
}

// svgElement takes the element out of an SVG file. Its texts were escaped when it was
// drawn.
func svgElement(svg []byte) template.HTML {
	if i := bytes.Index(svg, []byte("<svg")); i >= 0 {
		svg = svg[i:]
	}
	return template.HTML(bytes.TrimSpace(svg))
}

func render(p webPage) ([]byte, error) {
	var b bytes.Buffer
	err := pageLayout.Execute(&b, p)
	return b.Bytes(), err
}
