package figure

import (
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
)

// typesetter draws superscripts as small raised digits of the font: the characters
// themselves (¹ and ² apart) are missing in most fonts, in part or all, and where they
// come from another font an exponent looks like two.
type typesetter struct{ text.Handler }

func newTypesetter() typesetter { return typesetter{plot.DefaultTextHandler} }

const (
	raisedSize  = 0.7  // of the size of the text
	raisedShift = 0.36 // of it above the line
)

// plain are the digits and signs of superscripts.
var plain = map[rune]rune{
	'⁰': '0', '¹': '1', '²': '2', '³': '3', '⁴': '4', '⁵': '5', '⁶': '6', '⁷': '7', '⁸': '8', '⁹': '9',
	'⁻': '−', '⁺': '+',
}

// run is a stretch of a line of text.
type run struct {
	text   string
	raised bool
}

// runs splits a line, the superscripts replaced by what is to be raised.
func runs(line string) []run {
	var out []run
	for _, r := range line {
		p, raised := plain[r]
		if raised {
			r = p
		}
		if len(out) == 0 || out[len(out)-1].raised != raised {
			out = append(out, run{raised: raised})
		}
		out[len(out)-1].text += string(r)
	}
	return out
}

// face is the font that a run is drawn with.
func (t typesetter) face(r run, f font.Font) font.Face {
	if r.raised {
		f.Size *= raisedSize
	}
	return t.Cache().Lookup(f, f.Size)
}

// Box implements [text.Handler].
func (t typesetter) Box(line string, f font.Font) (width, height, depth vg.Length) {
	extents := t.Extents(f)
	for _, r := range runs(line) {
		face := t.face(r, f)
		width += face.Width(r.text)
	}
	return width, extents.Ascent, extents.Descent
}

// Draw implements [text.Handler] for text of one line.
func (t typesetter) Draw(c vg.Canvas, line string, s text.Style, at vg.Point) {
	if line = strings.TrimRight(line, "\n"); line == "" {
		return
	}
	c.SetColor(s.Color)
	if s.Rotation != 0 {
		c.Push()
		defer c.Pop()
		c.Translate(at)
		c.Rotate(s.Rotation)
		at = vg.Point{}
	}
	// The alignment is the share of the box that is to the left of and below the point.
	extents := t.Extents(s.Font)
	at.X += vg.Length(s.XAlign) * s.Width(line)
	at.Y += vg.Length(s.YAlign)*s.Height(line) + s.Font.Size - extents.Ascent
	for _, r := range runs(line) {
		face, y := t.face(r, s.Font), at.Y
		if r.raised {
			y += raisedShift * s.Font.Size
		}
		c.FillString(face, vg.Point{X: at.X, Y: y}, r.text)
		at.X += face.Width(r.text)
	}
}
