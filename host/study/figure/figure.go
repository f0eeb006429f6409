// Package figure draws figures as PNG, SVG or PDF. Save and Draw draw any Picture: the Curves of
// training runs (loss, quantization error and λ_t over the steps), a Chart of curves, bands, points
// and trajectories, grouped Bars, Differences of pairs, or a Heat map.
//
// The package only draws, and computes nothing but smoothing: means, intervals and projections are
// computed elsewhere (host/study/report). The same input always gives the same bytes. The colours
// are suitable for all kinds of colour vision.
package figure

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgpdf"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/cage-qat/cage/internal/atomicfile"
)

// Picture is a figure that Draw can draw: *Curves, *Chart, *Bars, *Differences or *Heat.
type Picture interface {
	// compose makes the parts of a figure of the given width, or nil if there is nothing to draw.
	compose(width vg.Length) *composition
}

// Options configures a figure. The zero value is a good default.
type Options struct {
	Title  string  // title above the figure; empty: none, as figures in papers have captions
	Width  float64 // in inches; 0: 6
	Height float64 // in inches; 0: the height of the panels, the legend and the title
}

// Format is a file format of figures.
type Format string

// Supported file formats.
const (
	PNG Format = "png" // 200 pixels per inch
	SVG Format = "svg"
	PDF Format = "pdf"
)

// ErrNoData is returned if no value of a picture can be drawn.
var ErrNoData = errors.New("no data to draw")

// Formats lists the formats, with SVG and PNG, which suit screens, first.
var Formats = []Format{SVG, PNG, PDF}

// Save draws a picture to a file, atomically. The extension of the file, .png, .svg or .pdf,
// determines the format.
func Save(path string, p Picture, o Options) error {
	format := Format(strings.ToLower(strings.TrimPrefix(filepath.Ext(path), ".")))
	if !slices.Contains(Formats, format) {
		return fmt.Errorf("figure %s: unknown file type %q, want .png, .svg or .pdf",
			path, filepath.Ext(path))
	}
	var content bytes.Buffer
	if err := Draw(&content, format, p, o); err != nil {
		return fmt.Errorf("figure %s: %w", path, err)
	}
	to, err := atomicfile.Target(path)
	if err != nil {
		return fmt.Errorf("figure: %w", err)
	}
	return atomicfile.WriteBytes(to, content.Bytes())
}

// Empty reports whether a picture has no value that can be drawn, so that Draw would return
// ErrNoData.
func Empty(p Picture) bool { return p.compose(defaultWidth) == nil }

// Draw draws a picture. It returns ErrNoData if no value of it can be drawn on its axes.
func Draw(w io.Writer, format Format, p Picture, o Options) error {
	width, title := defaultWidth, clean(o.Title)
	if o.Width > 0 {
		width = vg.Length(o.Width) * vg.Inch
	}
	parts := p.compose(width)
	if parts == nil {
		return ErrNoData
	}
	height := parts.height(title, width-2*margin)
	if o.Height > 0 {
		height = vg.Length(o.Height) * vg.Inch
	}
	onto := func(c vg.CanvasSizer) {
		canvas := draw.New(c)
		canvas.SetColor(background)
		canvas.Fill(canvas.Rectangle.Path())
		parts.layOut(draw.Crop(canvas, margin, -margin, margin, -margin), title)
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
		var text bytes.Buffer
		if _, err := c.WriteTo(&text); err != nil {
			return err
		}
		// Text is measured with Liberation Sans. Viewers that lack it use one of the listed fonts; Arial
		// has the same widths.
		const font, fonts = "Liberation Sans;", "'Liberation Sans',Arial,Helvetica,sans-serif;"
		replacer := strings.NewReplacer("font-family:"+font, "font-family:"+fonts)
		_, err := replacer.WriteString(w, text.String())
		return err
	case PDF:
		c := pdfCanvas{vgpdf.New(width, height)}
		onto(c)
		_, err := c.WriteTo(w)
		return err
	}
	return fmt.Errorf("unknown format %q", format)
}

const (
	defaultWidth = 6 * vg.Inch
	margin       = 0.1 * vg.Inch // around the figure
	dotsPerInch  = 200
)
