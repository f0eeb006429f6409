package console

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// drawn is a display on a terminal of that size.
func drawn(out io.Writer, width, height int) *Study {
	return &Study{out: out, width: func() int { return width }, height: func() int { return height }, now: func() time.Time { return now }}
}

// screen is as much of a terminal as a display uses.
type screen struct {
	lines  []string
	row    int
	writes int
}

func (s *screen) Write(p []byte) (int, error) {
	s.writes++
	text := string(p)
	for text != "" {
		switch {
		case strings.HasPrefix(text, "\x1b[?25l"), strings.HasPrefix(text, "\x1b[?25h"):
			text = text[6:]
		case strings.HasPrefix(text, "\x1b[K"):
			text = text[3:] // lines are written whole
		case strings.HasPrefix(text, "\x1b[J"):
			s.lines, text = s.lines[:min(s.row, len(s.lines))], text[3:]
		case strings.HasPrefix(text, "\x1b["):
			end := strings.IndexByte(text, 'A')
			n, err := strconv.Atoi(text[2:end])
			if err != nil {
				return 0, err
			}
			s.row, text = s.row-n, text[end+1:]
		case text[0] == '\r':
			text = text[1:]
		default:
			line, rest, _ := strings.Cut(text, "\n")
			for len(s.lines) <= s.row {
				s.lines = append(s.lines, "")
			}
			s.lines[s.row] = strings.TrimSuffix(line, "\x1b[K")
			s.row, text = s.row+1, rest
		}
	}
	return len(p), nil
}

func active(label string, step int, began time.Duration) Active {
	return Active{Label: label, Step: step, Steps: 1000, Loss: 3.25, Began: now.Add(-began)}
}

func ended(label, state, err string, took time.Duration) *Ended {
	e := &Ended{Label: label, State: state, Failed: state == "failed", Err: err, Took: took}
	if loss := 2.5; state == "done" {
		e.ValLoss = &loss
	}
	return e
}

// A display writes to the terminal itself: what it did not make must not rule it.
func TestEscapes(t *testing.T) {
	var out bytes.Buffer
	for _, d := range []*Study{drawn(&out, 90, 24), NewStudy(&out)} {
		out.Reset()
		list := []Active{active("a\x1b[31m\u202e", 2, time.Second)}
		d.Watch(Progress{Total: 2, Running: list, Ended: ended("b\x1b[31m", "failed", "first\x1b[31m\r\nsecond", time.Second)})
		d.Close()
		if strings.Contains(out.String(), "\x1b[31m") || strings.Contains(out.String(), "\u202e") || !strings.Contains(out.String(), `first\x1b[31m\r; second`) {
			t.Errorf("wrote %q", out.String())
		}
		if list[0].Label != "a\x1b[31m\u202e" {
			t.Error("the report was changed")
		}
	}
}

// On a terminal the lines are drawn anew; failures stay above them.
func TestTerminal(t *testing.T) {
	s := &screen{}
	d := drawn(s, 90, 24)
	show := func(p Progress, want ...string) {
		t.Helper()
		d.Watch(p)
		if diff := cmp.Diff(want, s.lines); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	show(Progress{Total: 12},
		"────────────────────────  0 of 12 cells done")
	show(Progress{Total: 12, Done: 3, Left: 95 * time.Second, Running: []Active{active("CAGE · 4", 250, time.Minute), active("STE · 10", 0, time.Second)}},
		"━━━━━━──────────────────  3 of 12 cells done  2 running  1m35s left",
		"  CAGE · 4  step 250/1000  loss 3.250  1m00s",
		"  STE · 10  starting       1s")
	show(Progress{Total: 12, Done: 3, Failed: 1, Running: []Active{active("CAGE · 4", 250, time.Minute)}, Ended: ended("STE · 10", "failed", "first\nsecond", time.Second)},
		"STE · 10: failed: first; second (1s)",
		"━━━━━━──────────────────  3 of 12 cells done  1 running  1 failed",
		"  CAGE · 4  step 250/1000  loss 3.250  1m00s")
	d.Watch(Progress{Total: 12, Done: 11, Failed: 1, Ended: ended("CAGE · 4", "done", "", time.Second)})
	d.Close()
	d.Close()
	want := []string{"STE · 10: failed: first; second (1s)", "━━━━━━━━━━━━━━━━━━━━━━──  11 of 12 cells done  1 failed"}
	if diff := cmp.Diff(want, s.lines); diff != "" {
		t.Errorf("in the end (-want +got):\n%s", diff)
	}
	if s.writes != 5 {
		t.Errorf("%d writes for 5 pictures: the screen flickers", s.writes)
	}
}

// A small terminal shows what fits.
func TestSmallTerminal(t *testing.T) {
	p := Progress{Total: 100}
	for range 9 {
		p.Running = append(p.Running, active("a long label of a cell", 5, time.Second))
	}
	for height := range 14 {
		for width := range 50 {
			s := &screen{}
			d := drawn(s, width, height)
			d.Watch(p)
			d.Watch(p)
			for _, line := range s.lines {
				if n := utf8.RuneCountInString(line); n > max(0, width-1) {
					t.Fatalf("%d columns on a terminal of %d: %q", n, width, line)
				}
			}
			if room := max(4, height) - 1; len(s.lines) > room {
				t.Fatalf("%d lines on a terminal of %d: %q", len(s.lines), height, s.lines)
			}
			if last := s.lines[len(s.lines)-1]; height == 8 && width == 40 && last != "  and 4 more" {
				t.Errorf("the last line is %q", last)
			}
		}
	}
}

// Where there is no terminal, each cell that ends is a line.
func TestPlainLines(t *testing.T) {
	out := &bytes.Buffer{}
	d := NewStudy(out)
	d.Watch(Progress{Total: 12, Running: []Active{active("CAGE · 4", 250, time.Minute)}})
	d.Watch(Progress{Total: 12, Done: 1, Left: 2 * time.Hour, Ended: ended("CAGE · 4", "done", "", 3*time.Minute)})
	d.Watch(Progress{Total: 12, Done: 1, Failed: 1, Ended: ended("STE · 4", "failed", "it broke", time.Second)})
	d.Watch(Progress{Total: 12, Done: 1, Failed: 1, Ended: ended("STE · 2", "interrupted", "", time.Second)})
	d.Close()
	want := "[ 1/12]   2h00m left  CAGE · 4: done, val loss 2.500 (3m00s)\n" +
		"[ 2/12]  STE · 4: failed: it broke (1s)\n" +
		"[ 2/12]  STE · 2: interrupted (1s)\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func ExampleStudy() {
	d := NewStudy(os.Stdout)
	d.Watch(Progress{Total: 2, Done: 1, Ended: ended("CAGE · 4 bits", "done", "", 61*time.Second)})
	d.Close()
	// Output:
	// [1/2]  CAGE · 4 bits: done, val loss 2.500 (1m01s)
}
