package console

import (
	"fmt"
	"io"
	"strings"
)

// A Page is a text that is shown repeatedly. On a terminal it is redrawn in place;
// elsewhere it is written again whenever it has changed.
type Page struct {
	out    io.Writer
	width  func() int // nil: no terminal
	height func() int
	lines  int // on the terminal now
	last   string
}

// NewPage returns a page that is shown on out.
func NewPage(out io.Writer) *Page {
	width, height := Size(out)
	return &Page{out: out, width: width, height: height}
}

// Show shows the text, which must end with a newline, in place of the previous one. On a
// terminal it shows as many of the first lines as fit, cut to its width.
func (p *Page) Show(text string) error {
	if p.width == nil {
		if text == p.last {
			return nil
		}
		if p.last != "" {
			text = "\n" + text
		}
		p.last = strings.TrimPrefix(text, "\n")
		_, err := io.WriteString(p.out, text)
		return err
	}
	up := ""
	if p.lines > 0 {
		up = fmt.Sprintf(linesUp, p.lines)
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if room := max(p.height()-2, 1); len(lines) > room {
		lines = append(lines[:room-1], fmt.Sprintf("… and %d more", len(lines)-room+1))
	}
	p.lines = len(lines)
	for i := range lines { // a line that the terminal wraps would count for two
		lines[i] = truncate(lines[i], p.width()-1)
	}
	_, err := io.WriteString(p.out, startOfLine+up+eraseBelow+strings.Join(lines, "\n")+"\n")
	return err
}
