package console_test

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cage-qat/cage/host/train/metrics"
)

// clock is a clock that tests move.
type clock struct{ now time.Time }

func newClock() *clock { return &clock{time.Unix(1_000_000, 0)} }

func (c *clock) advance(d time.Duration) { c.now = c.now.Add(d) }

func (c *clock) read() time.Time { return c.now }

func columns(width int) func() int { return func() int { return width } }

func record(step int) metrics.Record {
	return metrics.Record{Step: step, Loss: 3, LR: 1e-3, Tokens: int64(step) * 1000}
}

func measured(step int) metrics.Record {
	r := record(step)
	r.Lambda = 0.5
	r.ErrorRel = metrics.Some(0.0064)
	r.ValLoss = metrics.Some(2.5)
	return r
}

// screen plays the part of a terminal: it interprets what a Run writes and
// keeps every line that was on it, and counts the writes.
type screen struct {
	lines  []string
	cursor int // column in the last line
	writes int
}

func (s *screen) Write(p []byte) (int, error) {
	s.writes++
	if len(s.lines) == 0 {
		s.lines = []string{""}
	}
	text := string(p)
	for text != "" {
		last := &s.lines[len(s.lines)-1]
		if rest, ok := strings.CutPrefix(text, "\x1b[K"); ok {
			*last, text = string([]rune(*last)[:s.cursor]), rest
			continue
		}
		r, size := utf8.DecodeRuneInString(text)
		text = text[size:]
		switch r {
		case '\r':
			s.cursor = 0
		case '\n':
			s.lines, s.cursor = append(s.lines, ""), 0
		default:
			runes := append([]rune(*last), ' ')
			runes[s.cursor] = r
			*last = string(runes[:max(len(runes)-1, s.cursor+1)])
			s.cursor++
		}
	}
	return len(p), nil
}
