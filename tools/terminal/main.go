// Command terminal draws commands and what they print, as a terminal shows them: terminal --out FILE.svg < TEXT. Lines that
// begin with "$ " are commands.
package main

import (
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// prompt begins a command.
const prompt = "$ "

func main() {
	out := flag.String("out", "", "`FILE` for the picture (SVG)")
	title := flag.String("title", "", "what the picture shows, in words")
	flag.Parse()
	if err := run(*out, *title); err != nil {
		fmt.Fprintln(os.Stderr, "terminal:", err)
		os.Exit(1)
	}
}

func run(out, title string) error {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	list, err := lines(string(text))
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(vfs.At(out), []byte(picture(list, title)))
}

// lines returns the lines of a text, tabs as spaces. What a terminal would not show as a character is an error.
func lines(text string) (list []string, err error) {
	for number, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		var b strings.Builder
		columns := 0
		for _, r := range line {
			n := 1
			switch {
			case r == '\t':
				n = 8 - columns%8
				b.WriteString(strings.Repeat(" ", n))
			case r == unicode.ReplacementChar || !unicode.IsPrint(r):
				return nil, fmt.Errorf("line %d: %q cannot be drawn", number+1, r)
			default:
				b.WriteRune(r)
			}
			columns += n
		}
		list = append(list, b.String())
	}
	return list, nil
}

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

// picture draws lines of a terminal, the commands among them in bold. The title is the text alternative. The picture has
// a dark and a light form, according to its reader's preference.
func picture(lines []string, title string) string {
	columns := 80
	for _, line := range lines {
		columns = max(columns, utf8.RuneCountInString(line))
	}
	width, height := 2*padding+int(charWidth*float64(columns)+0.5), bar+padding+lineHeight*len(lines)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, "<title>%s</title>\n", escaped(title))
	b.WriteString(style)
	fmt.Fprintf(&b, `<rect class="paper" x="0.5" y="0.5" width="%d" height="%d" rx="8"/>`+"\n", width-1, height-1)
	for i := range 3 {
		fmt.Fprintf(&b, `<circle class="dot" cx="%d" cy="%d" r="5"/>`+"\n", padding+2+18*i, bar/2+2)
	}
	for i, line := range lines {
		class := ""
		if strings.HasPrefix(line, prompt) {
			class = ` class="bold"`
		}
		for _, at := range column.FindAllStringIndex(line, -1) {
			text := line[at[0]:at[1]]
			fmt.Fprintf(&b, `<text%s x="%.1f" y="%d" textLength="%.1f" lengthAdjust="spacingAndGlyphs">%s</text>`+"\n",
				class, padding+charWidth*float64(utf8.RuneCountInString(line[:at[0]])), bar+lineHeight*i+fontSize,
				charWidth*float64(utf8.RuneCountInString(text)), escaped(text))
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// column is a text without two spaces in a row: a column of a table then begins where it does on a terminal, in any font.
var column = regexp.MustCompile(`\S+( \S+)*`)

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

func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a strings.Builder takes everything
	return b.String()
}
