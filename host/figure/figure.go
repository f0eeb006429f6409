// Package figure draws, as PNG or SVG. WriteFile and Write draw the curves of
// training runs: loss, quantization error and λ_t over the steps, one run or
// several on top of each other. Save and Draw draw any Picture: a Chart of curves,
// bands, points and trajectories, grouped Bars, or a Heat map.
//
// It draws what it is given and computes nothing but smoothing: means, intervals
// and projections come from others (host/study/report). The same input makes the
// same bytes. Colours can be told apart with any kind of colour vision.
package figure

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/cage-qat/cage/host/metrics"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// Run is one run to draw. Its records are in the order of their steps.
type Run struct {
	Name    string // as it appears in the legend
	Records []metrics.Record
}

// Options configures a figure. The zero value is a good default.
type Options struct {
	Title  string  // above the figure; empty: none, as papers have captions instead
	Width  float64 // in inches; 0: 6
	Height float64 // in inches; 0: by the number of panels, 3.6 for a Picture
}

// Format is a file format.
type Format string

// The formats that can be written.
const (
	PNG Format = "png" // 200 pixels per inch
	SVG Format = "svg"
)

// ErrNoData is returned when no run has anything that could be drawn.
var ErrNoData = errors.New("no data to draw")

// WriteFile draws the curves of runs to a file, atomically. The ending of its name,
// .png or .svg, chooses the format.
func WriteFile(path string, runs []Run, o Options) error {
	return save(path, func(w io.Writer, format Format) error { return Write(w, format, runs, o) })
}

// save writes what draw makes to a file, in the format that its name asks for.
func save(path string, draw func(w io.Writer, format Format) error) error {
	format := Format(strings.ToLower(strings.TrimPrefix(filepath.Ext(path), ".")))
	if format != PNG && format != SVG {
		return fmt.Errorf("figure %s: unknown file type %q, want .png or .svg", path, filepath.Ext(path))
	}
	var content bytes.Buffer
	if err := draw(&content, format); err != nil {
		return fmt.Errorf("figure %s: %w", path, err)
	}
	return atomicfile.WriteBytes(vfs.At(path), content.Bytes())
}

// Write draws the curves of runs: a panel for the loss (training as a smoothed
// line over a faint raw one, validation dashed), one for the quantization error
// and one for λ_t, each left out when no run has a value for it. It returns
// ErrNoData when that leaves nothing.
func Write(w io.Writer, format Format, runs []Run, o Options) error {
	panels, err := build(runs)
	if err != nil {
		return err
	}
	if len(panels) == 0 {
		return ErrNoData
	}
	if o.Title != "" {
		panels[0].plot.Title.Text = o.Title
	}
	width, height := size(panels, o)
	return render(w, format, width, height, func(c draw.Canvas) { lay(panels, c) })
}

// render writes what paint draws on a canvas with a background.
func render(w io.Writer, format Format, width, height vg.Length, paint func(draw.Canvas)) error {
	onto := func(c vg.CanvasSizer) {
		canvas := draw.New(c)
		canvas.SetColor(background)
		canvas.Fill(canvas.Rectangle.Path())
		paint(canvas)
	}
	switch format {
	case PNG:
		c := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dotsPerInch))
		onto(c)
		_, err := vgimg.PngCanvas{Canvas: c}.WriteTo(w)
		return err
	case SVG:
		c := vgsvg.New(width, height)
		onto(c)
		return writeSVG(w, c)
	}
	return fmt.Errorf("unknown format %q", format)
}

// writeSVG writes a canvas with fonts to fall back on for viewers that lack the
// one the text was measured with; Arial has the same widths.
func writeSVG(w io.Writer, c *vgsvg.Canvas) error {
	var text bytes.Buffer
	if _, err := c.WriteTo(&text); err != nil {
		return err
	}
	_, err := w.Write(bytes.ReplaceAll(text.Bytes(),
		[]byte("font-family:Liberation Sans;"), []byte("font-family:'Liberation Sans',Arial,Helvetica,sans-serif;")))
	return err
}

// panel is one plot of a figure.
type panel struct {
	plot   *plot.Plot
	height vg.Length // of the data area and what stands above it
}

const (
	defaultWidth = 6 * vg.Inch
	footHeight   = 0.4 * vg.Inch // tick labels and axis label below the last panel
	titleHeight  = 0.3 * vg.Inch
	margin       = 0.1 * vg.Inch // around the figure
	panelGap     = 0.12 * vg.Inch
	dotsPerInch  = 200
)

// size returns the size of the whole figure.
func size(panels []panel, o Options) (width, height vg.Length) {
	width, height = defaultWidth, 2*margin+footHeight
	if o.Width > 0 {
		width = vg.Length(o.Width) * vg.Inch
	}
	for i, p := range panels {
		height += p.height
		if i > 0 {
			height += panelGap
		}
	}
	if o.Title != "" {
		height += titleHeight
	}
	if o.Height > 0 {
		height = vg.Length(o.Height) * vg.Inch
	}
	return width, height
}

// lay draws the panels below each other. Their data areas begin and end at the
// same columns, so that a step stands at the same place in all of them.
func lay(panels []panel, c draw.Canvas) {
	c = draw.Crop(c, margin, -margin, margin, -margin)
	total := footHeight
	if panels[0].plot.Title.Text != "" {
		total += titleHeight
	}
	for _, p := range panels {
		total += p.height
	}
	gaps := panelGap * vg.Length(len(panels)-1)
	scale := (c.Max.Y - c.Min.Y - gaps) / total // 1 unless a height was asked for
	cells := make([]draw.Canvas, len(panels))
	top := c.Max.Y
	for i, p := range panels {
		height := p.height
		if i == 0 && p.plot.Title.Text != "" {
			height += titleHeight
		}
		if i == len(panels)-1 {
			height += footHeight
		}
		cells[i] = c
		cells[i].Max.Y, cells[i].Min.Y = top, top-height*scale
		top = cells[i].Min.Y - panelGap
	}
	var left, right vg.Length
	for i, p := range panels {
		data := p.plot.DataCanvas(cells[i])
		left = max(left, data.Min.X-cells[i].Min.X)
		right = max(right, cells[i].Max.X-data.Max.X)
	}
	for i, p := range panels {
		data := p.plot.DataCanvas(cells[i])
		cell := draw.Crop(cells[i], left-(data.Min.X-cells[i].Min.X), (cells[i].Max.X-data.Max.X)-right, 0, 0)
		placeLegend(p.plot, p.plot.DataCanvas(cell))
		p.plot.Draw(cell)
	}
}

// placeLegend moves a legend to the right end of the data area with its text after
// the swatches, where it may grow in a viewer that uses another font.
func placeLegend(p *plot.Plot, data draw.Canvas) {
	width := p.Legend.Rectangle(data).Size().X
	p.Legend.Left = true
	p.Legend.XOffs = data.Max.X - data.Min.X - width - legendInset
}
