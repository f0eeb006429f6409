package figure

import (
	"time"

	"codeberg.org/go-pdf/fpdf"
	xfont "golang.org/x/image/font"
	"golang.org/x/image/font/sfnt"
	"golang.org/x/image/math/fixed"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/vgpdf"
)

func init() { // the same input gives the same bytes
	fpdf.SetDefaultCatalogSort(true)
	fpdf.SetDefaultCreationDate(time.Unix(0, 0).UTC())
	fpdf.SetDefaultModificationDate(time.Unix(0, 0).UTC())
}

// pdfCanvas draws text as glyph outlines, because vgpdf can write only the characters of
// Windows-1252, which lacks λ, ‖ and −.
type pdfCanvas struct{ *vgpdf.Canvas }

func (c pdfCanvas) FillString(f font.Face, at vg.Point, text string) {
	var buffer sfnt.Buffer
	var path vg.Path
	size := fixed.I(int(f.Face.UnitsPerEm()))
	unit := float64(f.Font.Size) / float64(size)
	point := func(p fixed.Point26_6) vg.Point { // sfnt's y axis points down
		return at.Add(vg.Point{X: vg.Length(float64(p.X) * unit), Y: vg.Length(-float64(p.Y) * unit)})
	}
	var last sfnt.GlyphIndex
	for i, r := range text {
		glyph, err := f.Face.GlyphIndex(&buffer, r)
		if err != nil {
			continue
		}
		if kern, err := f.Face.Kern(&buffer, last, glyph, size, xfont.HintingNone); i > 0 && err == nil {
			at.X += vg.Length(float64(kern) * unit)
		}
		segments, err := f.Face.LoadGlyph(&buffer, glyph, size, nil)
		if err != nil {
			continue
		}
		for _, s := range segments {
			switch s.Op {
			case sfnt.SegmentOpMoveTo:
				path.Close()
				path.Move(point(s.Args[0]))
			case sfnt.SegmentOpLineTo:
				path.Line(point(s.Args[0]))
			case sfnt.SegmentOpQuadTo:
				path.QuadTo(point(s.Args[0]), point(s.Args[1]))
			case sfnt.SegmentOpCubeTo:
				path.CubeTo(point(s.Args[0]), point(s.Args[1]), point(s.Args[2]))
			}
		}
		if advance, err := f.Face.GlyphAdvance(&buffer, glyph, size, xfont.HintingNone); err == nil {
			at.X += vg.Length(float64(advance) * unit)
		}
		last = glyph
	}
	if len(path) > 0 {
		path.Close()
		c.Fill(path)
	}
}
