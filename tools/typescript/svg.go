package typescript

import (
	"encoding/xml"
	"fmt"
	"strings"
)

// Sizes in pixels of the picture, at which it is shown unless it is scaled. A character of
// a monospaced font is 0.6 of its size wide, in all but a few of them; textLength holds the
// text to that width in those.
const (
	fontSize   = 13
	charWidth  = 0.602 * fontSize
	lineHeight = 18
	padding    = 18
	bar        = 30 // above the text, with the three dots of a window
)

// SVG draws the screen in a window with at least the given number of columns. The title is the text alternative of the
// picture. The picture has a dark and a light form, according to its reader's preference.
func (s *Screen) SVG(title string, columns int) string {
	lines := s.lines
	for _, line := range lines {
		columns = max(columns, len(line))
	}
	width := 2*padding + int(charWidth*float64(columns)+0.5)
	drawn := len(s.Lines())
	height := bar + padding + lineHeight*drawn
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, "<title>%s</title>\n", escaped(title))
	b.WriteString(style)
	fmt.Fprintf(&b, `<rect class="paper" x="0.5" y="0.5" width="%d" height="%d" rx="8"/>`+"\n", width-1, height-1)
	for i := range 3 {
		fmt.Fprintf(&b, `<circle class="dot" cx="%d" cy="%d" r="5"/>`+"\n", padding+2+18*i, bar/2+2)
	}
	for i, line := range lines[:drawn] {
		y := bar + lineHeight*i + fontSize
		for _, part := range parts(line) {
			class := ""
			if part.bold {
				class = ` class="bold"`
			}
			fmt.Fprintf(&b, `<text%s x="%.1f" y="%d" textLength="%.1f" lengthAdjust="spacingAndGlyphs">%s</text>`+"\n",
				class, padding+charWidth*float64(part.column), y, charWidth*float64(len([]rune(part.text))), escaped(part.text))
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

const style = `<style>
.paper { fill: #ffffff; stroke: #d0d7de }
.dot { fill: #d0d7de }
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace; fill: #24292f; white-space: pre }
.bold { font-weight: bold; fill: #0550ae }
@media (prefers-color-scheme: dark) {
.paper { fill: #15171c; stroke: #3d444d }
.dot { fill: #3d444d }
text { fill: #dfe3e8 }
.bold { fill: #8ab8ff }
}
</style>
`

// part is a text on a line, all of it bold or none.
type part struct {
	column int
	text   string
	bold   bool
}

// parts divides a line where its weight changes, and at two spaces or more: a column of
// a table then begins where it does on a terminal, in any font.
func parts(line []cell) []part {
	var out []part
	for i := 0; i < len(line); {
		if line[i].char == ' ' {
			i++
			continue
		}
		end := i
		for j := i; j < len(line) && line[j].bold == line[i].bold && !(line[j].char == ' ' && j+1 < len(line) && line[j+1].char == ' '); j++ {
			if line[j].char != ' ' {
				end = j + 1
			}
		}
		p := part{column: i, bold: line[i].bold}
		for _, c := range line[i:end] {
			p.text += string(c.char)
		}
		out, i = append(out, p), end
	}
	return out
}

func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a strings.Builder takes everything
	return b.String()
}
