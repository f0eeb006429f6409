// Package page lays out the report of a study as one HTML file that needs nothing
// else: no network, no other file, and a browser of any kind; without JavaScript it
// only cannot sort, filter or show values under the pointer.
//
// It knows texts, numbers and pictures, and nothing of studies: what stands in the
// page is decided in host/study/report. All texts are escaped here. Curves are drawn by
// uPlot, whose files, as they are on npm, are in the directory uplot.
package page

import (
	"bytes"
	"embed"
	"html/template"
	"io/fs"
	"math"
	"strconv"
)

// Page is what is shown, top to bottom.
type Page struct {
	Title    string
	Summary  string // a sentence below the title
	Tables   []Table
	Figures  []Figure
	Failures []Failure
	Runs     Runs
}

// Table is a table whose columns can be sorted.
type Table struct {
	Title string
	Head  [][]Heading // lines of headings; those of the last line sort
	Rows  [][]Cell
	Notes []string
	// Below is a table that belongs to this one, nil for none.
	Below *Table
}

// Heading is a heading above one or several columns.
type Heading struct {
	Label   string
	Columns int
	Text    bool // the column has texts, which stand at the left
}

// Cell is a cell of a table.
type Cell struct {
	Text string
	Note string   // smaller, below the text
	Sort *float64 // by what the column is sorted; nil: at the end
	Head bool     // it names its row
	Bold bool
	Left bool   // it stands at the left, as texts do
	Link string // the ID of an element of the page
}

// Key makes a number something to sort by; what is not a number is sorted to the end.
func Key(x float64) *float64 {
	if math.IsNaN(x) {
		return nil
	}
	return &x
}

// Figure is a picture with its title.
type Figure struct {
	Title string
	SVG   []byte // as host/figure writes it; empty: nothing to draw
	Notes []string
	// Paper keeps the picture on light paper in the dark: of one whose colours have an order, from
	// light to dark, which must not turn round.
	Paper bool
	Chart *Chart // what the pointer can be asked about; nil: the picture alone
}

// Chart is a figure of curves as numbers.
type Chart struct {
	X      string  `json:"x"` // labels of the axes
	Y      string  `json:"y"`
	LogX   bool    `json:"logx"`
	LogY   bool    `json:"logy"`
	YMin   float64 `json:"ymin,omitempty"` // the range of Y; YMax 0: that of the curves
	YMax   float64 `json:"ymax,omitempty"`
	Series []Curve `json:"series"`
}

// Curve is a curve of a chart, with a band around it. All slices have the same length;
// null breaks the curve.
type Curve struct {
	Name string     `json:"name"`
	X    []float64  `json:"x"`
	Y    []*float64 `json:"y"`
	Low  []*float64 `json:"low"`  // empty: no band
	High []*float64 `json:"high"` // empty: no band
	// Color is the n-th colour of all curves, from 1; 0: by its place among the curves.
	Color int        `json:"color,omitempty"`
	Dash  int        `json:"dash,omitempty"` // the n-th kind of line, in the same way
	Raw   []*float64 `json:"raw,omitempty"`  // what Y was smoothed from; empty: Y is as recorded. There is no band then
}

// Failure is a cell that ended in an error.
type Failure struct{ Name, Err string }

// Runs lists all cells.
type Runs struct {
	Table       Table
	Details     []Detail
	Provenances []string // texts that details share
}

// Detail is what is known of one cell.
type Detail struct {
	ID         string // for links
	Name       string
	State      string
	Settings   []string // what it changes of the base
	Config     string
	Provenance int // in Provenances; -1: none
}

// Contents is a page that leads to the pages of several studies, with their tables.
type Contents struct {
	Title   string
	Studies []Entry
}

// Entry is a study in the contents.
type Entry struct {
	Name    string
	Summary string // a sentence below the name
	Link    string // to the study's page, relative to the contents
	Tables  []Table
}

//go:embed page.gohtml contents.gohtml style.css script.js chart.js uplot
var files embed.FS

var layout = template.Must(template.New("page.gohtml").Funcs(template.FuncMap{
	"css": func(names ...string) (template.CSS, error) { s, err := read(names); return template.CSS(s), err },
	"js":  func(names ...string) (template.JS, error) { s, err := read(names); return template.JS(s), err },
	"svg": picture,
	"key": func(x *float64) string { return strconv.FormatFloat(*x, 'g', -1, 64) },
	"inc": func(i int) int { return i + 1 },
}).ParseFS(files, "page.gohtml", "contents.gohtml"))

// Assets are the files that pages are made of, for other pages that look the same.
func Assets() fs.FS { return files }

// read returns files one after another.
func read(names []string) (string, error) {
	var all []byte
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			return "", err
		}
		all = append(append(all, text...), '\n')
	}
	return string(all), nil
}

// picture takes the element out of an SVG file. Its texts were escaped when it was
// drawn.
func picture(svg []byte) template.HTML {
	if i := bytes.Index(svg, []byte("<svg")); i >= 0 {
		svg = svg[i:]
	}
	return template.HTML(bytes.TrimSpace(svg))
}

// Render writes the page.
func Render(p Page) ([]byte, error) { return render("page.gohtml", p) }

// RenderContents writes the page.
func RenderContents(c Contents) ([]byte, error) { return render("contents.gohtml", c) }

func render(name string, data any) ([]byte, error) {
	var b bytes.Buffer
	err := layout.ExecuteTemplate(&b, name, data)
	return b.Bytes(), err
}
