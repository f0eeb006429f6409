package console_test

import (
	"bytes"
	"fmt"
	"log"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/cage-qat/cage/host/train/console"
	"github.com/cage-qat/cage/host/train/metrics"
)

func TestLiveLine(t *testing.T) {
	c, s := newClock(), &screen{}
	d := console.NewRun(s, console.RunOptions{Total: 1000, Width: columns(140), Now: c.read})
	for step := 1; step <= 250; step++ {
		c.advance(500 * time.Millisecond)
		if step == 200 {
			d.Update(measured(step))
		} else {
			d.Update(record(step))
		}
	}
	want := " 25% ━━━━━━──────────────────  step 250/1000  12m30s left  loss 3.000  ppl 20.09  val " +
		"ppl 12.18  λ 0  ‖e‖ 8.00%  1.00k tok/s  lr 1.00e-03"
	// The line of an evaluation stays above the live line.
	evaluation := "step 200/1000  13m20s left  loss 3.000  ppl 20.09  val ppl 12.18  λ 0.500  ‖e‖ " +
		"8.00%  1.00k tok/s  lr 1.00e-03"
	if diff := cmp.Diff([]string{evaluation, want}, s.lines); diff != "" {
		t.Errorf("the screen shows (-want +got):\n%s", diff)
	}
	d.Close()
	if diff := cmp.Diff([]string{evaluation, want, ""}, s.lines); diff != "" {
		t.Errorf("after Close the screen shows (-want +got):\n%s", diff)
	}
}

func TestNarrowTerminals(t *testing.T) {
	wants := map[int]string{
		80: "  2% ────────────────────────  step 20/1000  16m20s left  loss 3.000  ppl 20.09",
		60: "  2% ────────────────────────  step 20/1000  16m20s left  l",
		1:  "",
		0:  "",
	}
	for width := 160; width >= 0; width-- {
		c, s := newClock(), &screen{}
		d := console.NewRun(s, console.RunOptions{Total: 1000, Width: columns(width), Now: c.read})
		for step := 1; step <= 20; step++ {
			c.advance(time.Second)
			d.Update(measured(step))
		}
		got := s.lines[len(s.lines)-1]
		if n := utf8.RuneCountInString(got); n > max(0, width-1) {
			t.Fatalf("%d columns on a terminal of %d: %q", n, width, got)
		}
		if want, ok := wants[width]; ok && want != got {
			t.Errorf("width %d shows %q, want %q", width, got, want)
		}
	}
}

// TestUnknownWidth checks that a terminal which reports a size of zero is taken to be usual.
func TestUnknownWidth(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0) // a new one has this size
	if err != nil {
		t.Skip(err)
	}
	defer terminal.Close()
	t.Setenv("TERM", "xterm")
	width := console.Width(terminal)
	if width == nil {
		t.Skip("it is no terminal here")
	}
	if got := width(); got != 80 {
		t.Errorf("the width is %d, want 80", got)
	}
}

func TestRedrawsAtMostTenTimesASecond(t *testing.T) {
	c, s := newClock(), &screen{}
	d := console.NewRun(s, console.RunOptions{Total: 10_000, Width: columns(100), Now: c.read})
	for step := 1; step <= 5000; step++ {
		c.advance(time.Millisecond)
		d.Update(record(step))
	}
	if s.writes > 50 {
		t.Errorf("%d writes in five seconds", s.writes)
	}
	d.Close()
	if !strings.Contains(s.lines[0], "step 5000/10000") {
		t.Errorf("Close leaves %q, not the last step", s.lines[0])
	}
}

func TestLogLinesStandAboveTheLiveLine(t *testing.T) {
	c, s := newClock(), &screen{}
	d := console.NewRun(s, console.RunOptions{Total: 100, Width: columns(60), Now: c.read})
	logger := log.New(d, "", 0)
	logger.Print("before the first step")
	d.Update(record(1))
	before := s.writes
	logger.Print("plugin said something that is quite a bit longer than the live line is")
	if s.writes != before+1 {
		t.Errorf("a log line took %d writes: the screen flickers", s.writes-before)
	}
	fmt.Fprint(d, "in two ")
	d.Update(record(2))
	fmt.Fprint(d, "parts\nand another, unfinished")
	d.Close()
	logger.Print("after the end")
	want := []string{
		"before the first step",
		"plugin said something that is quite a bit longer than the live line is",
		"in two parts",
		"  2% ────────────────────────  step 2/100  1m38s left  loss",
		"and another, unfinished",
		"after the end",
		"",
	}
	if diff := cmp.Diff(want, s.lines); diff != "" {
		t.Errorf("the screen shows (-want +got):\n%s", diff)
	}
}

func TestPlainLines(t *testing.T) {
	c, out := newClock(), &bytes.Buffer{}
	d := console.NewRun(out, console.RunOptions{Total: 45, Every: 20, Now: c.read})
	for step := 1; step <= 45; step++ {
		c.advance(2 * time.Second)
		if step == 30 {
			d.Update(measured(step))
		} else {
			d.Update(record(step))
		}
	}
	fmt.Fprintln(d, "a log line")
	d.Close()
	want := strings.Join([]string{
		"step 1/45  loss 3.000  ppl 20.09  λ 0  lr 1.00e-03",
		"step 20/45  25s left  loss 3.000  ppl 20.09  λ 0  1.00k tok/s  lr 1.00e-03",
		"step 30/45  15s left  loss 3.000  ppl 20.09  val ppl 12.18  λ 0.500  ‖e‖ 8.00%  1.00k tok/s  " +
			"lr 1.00e-03",
		"step 40/45  5s left  loss 3.000  ppl 20.09  val ppl 12.18  λ 0  ‖e‖ 8.00%  1.00k tok/s  lr " +
			"1.00e-03",
		"step 45/45  loss 3.000  ppl 20.09  val ppl 12.18  λ 0  ‖e‖ 8.00%  1.00k tok/s  lr 1.00e-03",
		"a log line", "",
	}, "\n")
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("output differs (-want +got):\n%s", diff)
	}
}

// TestTeacher checks that with a teacher, the perplexity is computed from the cross-entropy.
func TestTeacher(t *testing.T) {
	out := &bytes.Buffer{}
	d := console.NewRun(out, console.RunOptions{Total: 1, Now: newClock().read})
	r := record(1)
	r.Loss, r.Divergence, r.CrossEntropy = 0.0123, metrics.Some(0.0123), metrics.Some(3)
	d.Update(r)
	d.Close()
	if want := "step 1/1  loss 0.012  ppl 20.09  λ 0  lr 1.00e-03\n"; out.String() != want {
		t.Errorf("output %q, want %q", out.String(), want)
	}
}

func TestPlainLinesOfARunThatIsStopped(t *testing.T) {
	c, out := newClock(), &bytes.Buffer{}
	d := console.NewRun(out, console.RunOptions{Total: 1000, Every: 100, Now: c.read})
	for step := 501; step <= 507; step++ { // resumed after step 500
		c.advance(time.Second)
		r := record(step)
		r.Skipped = step / 506
		d.Update(r)
	}
	d.Close()
	want := "step 501/1000  loss 3.000  ppl 20.09  λ 0  lr 1.00e-03\n" +
		"step 507/1000  8m13s left  loss 3.000  ppl 20.09  λ 0  1.00k tok/s  1 skipped  lr 1.00e-03\n"
	if out.String() != want {
		t.Errorf("output %q, want %q", out.String(), want)
	}
}

func TestUnusualNumbers(t *testing.T) {
	c, s := newClock(), &screen{}
	d := console.NewRun(s, console.RunOptions{Total: 0, Width: columns(120), Now: c.read})
	for _, loss := range []float64{math.NaN(), math.Inf(1), 12, 700, 1000, -1} {
		d.Update(metrics.Record{Step: 3, Loss: metrics.Number(loss), Lambda: metrics.Some(math.Inf(1))})
		c.advance(time.Hour)
	}
	if got := s.lines[0]; !strings.Contains(got, "100%") ||
		!strings.Contains(got, "loss -1.000  ppl 0.368  λ +Inf") {
		t.Errorf("shows %q", got)
	}
}

func TestConcurrentUse(t *testing.T) {
	d := console.NewRun(&screen{}, console.RunOptions{Total: 100, Width: columns(80)})
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for step := 1; step <= 100; step++ {
				d.Update(record(step))
				fmt.Fprintln(d, "line")
			}
		})
	}
	group.Wait()
	d.Close()
	d.Close()
}

func TestAFileIsNoTerminal(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if console.Width(f) != nil {
		t.Error("a file is taken for a terminal")
	}
}

func ExampleRun() {
	d := console.NewRun(os.Stdout, console.RunOptions{Total: 1000, Every: 500})
	d.Update(metrics.Record{Step: 500, Loss: 3.21, LR: 1e-3, Lambda: metrics.Some(0.5),
		TokensPerSecond: metrics.Some(12345)})
	fmt.Fprintln(d, "a log line")
	d.Close()
	// Output:
	// step 500/1000  loss 3.210  ppl 24.78  λ 0.500  12.3k tok/s  lr 1.00e-03
	// a log line
}

// TestProblems checks that losses of a problem without data are not shown as perplexities.
func TestProblems(t *testing.T) {
	var out bytes.Buffer
	d := console.NewRun(&out, console.RunOptions{Total: 100, Problem: true, Now: newClock().read})
	r := measured(10)
	r.Loss, r.ValLoss = 0.000125, metrics.Some(1.5)
	d.Update(r)
	want := "step 10/100  loss 1.25e-04  val loss 1.500  λ 0.500  ‖e‖ 8.00%  lr 1.00e-03\n"
	if got := out.String(); got != want {
		t.Errorf("the line is %q, want %q", got, want)
	}
}

// clock is a clock that tests advance.
type clock struct{ now time.Time }

func newClock() *clock { return &clock{time.Unix(1_000_000, 0)} }

func (c *clock) advance(d time.Duration) { c.now = c.now.Add(d) }

func (c *clock) read() time.Time { return c.now }

func columns(width int) func() int { return func() int { return width } }

// record returns a record of a run whose steps take one second each.
func record(step int) metrics.Record {
	return metrics.Record{Step: step, Loss: 3, LR: 1e-3, Lambda: metrics.Some(0),
		Tokens: int64(step) * 1000, Seconds: metrics.Number(step)}
}

func measured(step int) metrics.Record {
	r := record(step)
	r.Lambda = metrics.Some(0.5)
	r.ErrorRel = metrics.Some(0.0064)
	r.ValLoss = metrics.Some(2.5)
	return r
}

// screen imitates a terminal: it interprets what a Run writes, keeps every line, and counts the
// writes.
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

// TestMain fails if a goroutine outlives the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
