// Command terminal draws commands and what they print, as a terminal shows them: terminal --out FILE.svg < TEXT. Lines that
// begin with "$ " are commands.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

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
