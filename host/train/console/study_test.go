package console

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func ended(label, state, err string, took time.Duration) *Ended {
	e := &Ended{Label: label, State: state, Failed: state == "failed", Err: err, Took: took}
	if loss := 2.5; state == "done" {
		e.ValLoss = &loss
	}
	return e
}

// TestEscapes checks that control characters in labels and errors are escaped.
func TestEscapes(t *testing.T) {
	var out bytes.Buffer
	for _, d := range []*Study{{out: &out, width: func() int { return 90 }}, NewStudy(&out)} {
		out.Reset()
		d.Watch(Progress{Total: 2, Ended: ended("b\x1b[31m", "failed", "first\x1b[31m\r\nsecond",
			time.Second)})
		d.Close()
		if strings.Contains(out.String(), "\x1b[31m") ||
			!strings.Contains(out.String(), `first\x1b[31m\r; second`) {
			t.Errorf("wrote %q", out.String())
		}
	}
}

// TestTerminal checks the live line on a terminal, cut to its width, and failures above it.
func TestTerminal(t *testing.T) {
	var out bytes.Buffer
	width := 90
	d := &Study{out: &out, width: func() int { return width }}
	show := func(p Progress, want string) {
		t.Helper()
		out.Reset()
		d.Watch(p)
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	show(Progress{Total: 12}, "\r────────────────────────  0 of 12 cells done\x1b[K")
	show(Progress{Total: 12, Done: 3, Left: 95 * time.Second, Running: 2},
		"\r━━━━━━──────────────────  3 of 12 cells done  2 running  1m35s left\x1b[K")
	show(Progress{Total: 12, Done: 3, Failed: 1, Running: 1,
		Ended: ended("STE · 10", "failed", "first\nsecond", time.Second)},
		"\rSTE · 10: failed: first; second (1s)\x1b[K\n━━━━━━──────────────────  3 of 12 cells done  1 "+
			"running  1 failed\x1b[K")
	d.Close()
	d.Close()
	if !strings.HasSuffix(out.String(), "\x1b[K\n") || strings.HasSuffix(out.String(), "\n\n") {
		t.Errorf("after Close the output is %q", out.String())
	}
	for width = range 50 {
		out.Reset()
		d.Watch(Progress{Total: 100, Running: 9})
		if n := utf8.RuneCountInString(strings.Trim(strings.TrimSuffix(out.String(), "\x1b[K"),
			"\r")); n > max(0, width-1) {
			t.Fatalf("%d columns on a terminal of %d: %q", n, width, out.String())
		}
	}
}

// TestPlainLines checks that without a terminal, each cell that has ended gets a line.
func TestPlainLines(t *testing.T) {
	out := &bytes.Buffer{}
	d := NewStudy(out)
	d.Watch(Progress{Total: 12, Running: 1})
	d.Watch(Progress{Total: 12, Done: 1, Left: 2 * time.Hour,
		Ended: ended("CAGE · 4", "done", "", 3*time.Minute)})
	d.Watch(Progress{Total: 12, Done: 1, Failed: 1,
		Ended: ended("STE · 4", "failed", "it broke", time.Second)})
	d.Watch(Progress{Total: 12, Done: 1, Failed: 1,
		Ended: ended("STE · 2", "interrupted", "", time.Second)})
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
