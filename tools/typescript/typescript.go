// Package typescript draws what a terminal has shown. It reads the bytes that programs
// wrote to the terminal (a typescript, as script(1) calls it), interprets them as a
// terminal does, and writes the remaining lines as an SVG picture. It knows only what the
// programs of this repository and a shell write, and refuses everything else, so that no
// picture is wrong without notice.
package typescript

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// cell is a character on the screen.
type cell struct {
	char rune
	bold bool
}

// Screen holds all lines of a terminal, from the first on: nothing scrolls away.
type Screen struct {
	lines       [][]cell
	row, column int
	bold        bool
}

// Lines returns the lines without spaces at their ends, up to the last one that is not empty.
func (s *Screen) Lines() []string {
	var out []string
	for _, line := range s.lines {
		var b strings.Builder
		for _, c := range line {
			b.WriteRune(c.char)
		}
		out = append(out, strings.TrimRight(b.String(), " "))
	}
	for len(out) > 0 && out[len(out)-1] == "" {
		out = out[:len(out)-1]
	}
	return out
}

// Play interprets a text as a terminal does. The error names the first sequence that the
// screen does not know, and its line.
func (s *Screen) Play(text string) error {
	for text != "" {
		if rest, ok := strings.CutPrefix(text, "\x1b["); ok {
			end := strings.IndexFunc(rest, func(r rune) bool { return r >= '@' && r <= '~' })
			if end < 0 {
				return s.unknown(text)
			}
			if !s.control(rest[:end], rest[end]) {
				return s.unknown(text[:len("\x1b[")+end+1])
			}
			text = rest[end+1:]
			continue
		}
		r, size := utf8.DecodeRuneInString(text)
		if !s.put(r) || r == utf8.RuneError && size == 1 {
			return s.unknown(text[:size])
		}
		text = text[size:]
	}
	return nil
}

func (s *Screen) unknown(what string) error {
	return fmt.Errorf("line %d of the screen: %.20q is nothing that can be drawn", s.row+1, what)
}

// control does one control sequence, as ECMA-48 has them: parameters and a final byte.
func (s *Screen) control(parameters string, final byte) bool {
	n := 1
	if parameters != "" {
		if _, err := fmt.Sscanf(parameters, "%d", &n); err != nil {
			return parameters == "?25" && (final == 'h' || final == 'l') // the cursor is not drawn
		}
	}
	switch final {
	case 'K': // erase to the end of the line
		s.cut(s.row)
		return parameters == "" || n == 0
	case 'J': // and all below
		s.cut(s.row)
		s.lines = s.lines[:min(len(s.lines), s.row+1)]
		return parameters == "" || n == 0
	case 'A':
		s.row = max(0, s.row-n)
	case 'm':
		s.bold = parameters != "" && n == 1
		return parameters == "" || parameters == "0" || parameters == "1"
	default:
		return false
	}
	return true
}

// cut ends a line at the cursor.
func (s *Screen) cut(row int) {
	if row < len(s.lines) {
		s.lines[row] = s.lines[row][:min(len(s.lines[row]), s.column)]
	}
}

// put writes one character at the cursor, or moves the cursor.
func (s *Screen) put(r rune) bool {
	switch {
	case r == '\n':
		s.row++ // a terminal gets "\r\n" for it
	case r == '\r':
		s.column = 0
	case r == '\b':
		s.column = max(0, s.column-1)
	case r == '\t':
		s.column += 8 - s.column%8
	case r < ' ' || r == 0x7f:
		return false
	default:
		for len(s.lines) <= s.row {
			s.lines = append(s.lines, nil)
		}
		for len(s.lines[s.row]) <= s.column {
			s.lines[s.row] = append(s.lines[s.row], cell{char: ' '})
		}
		s.lines[s.row][s.column] = cell{r, s.bold}
		s.column++
	}
	return true
}
