package plugin

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/internal/effort"
	"github.com/cage-qat/cage/internal/safetext"
	"github.com/cage-qat/cage/sdk"
)

func TestThrottle(t *testing.T) {
	log, clock := &logBuffer{}, time.Unix(1_000_000, 0)
	th := newThrottle(log.logger())
	th.now = func() time.Time { return clock }
	say := func(n int, line string) (passed int) {
		before := strings.Count(log.String(), "\n")
		for range n {
			th.log(hclog.Info, line)
		}
		return strings.Count(log.String(), "\n") - before
	}
	if got := say(loggedBurst+50, "line"); got != loggedBurst {
		t.Errorf("%d lines passed at once, want %d", got, loggedBurst)
	}
	clock = clock.Add(time.Second)
	if got := say(loggedRate+50, "line"); got != loggedRate {
		t.Errorf("%d lines passed a second later, want %d", got, loggedRate)
	}
	clock = clock.Add(time.Hour)
	if got, want := say(loggedBurst, strings.Repeat("x", 8192)), loggedBytes/8192-1; got != want {
		t.Errorf("%d long lines passed, want %d", got, want)
	}
	if longest := len(log.String()); longest > loggedBytes+200*loggedBurst {
		t.Errorf("%d bytes were passed on", longest)
	}
	th.close()
	if !strings.HasSuffix(log.String(), "printed too much: the rest was left out: lines=973 bytes=7152016\n") {
		t.Errorf("in the end it says %q", log.String()[len(log.String())-100:])
	}
}

// A plugin that prints without end fills neither the log nor the message.
func TestFlood(t *testing.T) {
	effort.Long(t, "prints megabytes")
	t.Parallel()
	log := &logBuffer{}
	c := start(t, "floods", sdk.KindQuantizer, Options{Logger: log.logger()})
	if _, err := c.Quantize(t.Context(), site("")); err != nil {
		t.Fatal(err)
	}
	c.Close()
	text := log.String()
	if len(text) > 2*loggedBytes || !strings.Contains(text, "printed too much: the rest was left out: lines=") {
		t.Errorf("%d bytes were logged, which end in\n%s", len(text), text[max(0, len(text)-300):])
	}
}

// What a plugin sends beside its answers is bounded, too.
func TestFloodedStreams(t *testing.T) {
	effort.Long(t, "sends megabytes")
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	c := start(t, "floods-streams", sdk.KindQuantizer, Options{})
	defer c.Close()
	for range 5 {
		if _, err := c.Quantize(t.Context(), site("")); err != nil {
			t.Fatal(err)
		}
		if now := heap(); now > before+32<<20 {
			t.Fatalf("the host keeps %d MiB", (now-before)>>20)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// Whatever a plugin says is shown, and does nothing to a terminal: its log, its plain
// lines, its refusals and its panics.
func TestEscapes(t *testing.T) {
	effort.Long(t, "starts a plugin that prints")
	log := &logBuffer{}
	c := start(t, "escapes", sdk.KindQuantizer, Options{Logger: log.logger()})
	_, refusal := c.Quantize(t.Context(), site("escape"))
	_, panicked := c.Quantize(t.Context(), site("escape-panic"))
	c.Close()
	check(t, refusal, ErrRefused, `no\x1b[2J\u202e`, "\n  cage: all is well")
	check(t, panicked, ErrFailed, `no\x1b[2J\u202e`, "\n  cage: all is well")
	for _, want := range []string{`plain \x1b[2J\u202e\u200b\u2028?`, `two\nlines \x1b[2J`, `k\x1b[1m=v\u202e\n`, `\x1b[3m`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
	for what, text := range map[string]string{"log": log.String(), "refusal": refusal.Error(), "panic": panicked.Error()} {
		if safetext.Text(text) != text {
			t.Errorf("the %s is %q", what, text)
		}
	}
}
