package plugin

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/internal/safetext"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk"
)

func TestParseLog(t *testing.T) {
	cases := []struct {
		line    string
		level   hclog.Level
		message string
		args    []any
	}{
		{`plain text`, hclog.Info, `plain text`, nil},
		{`{"@level":"warn","@message":"m","b":1,"a":"x","@timestamp":"t"}`, hclog.Warn, "m", []any{"a", "x", "b", 1.0}},
		{`{"@level":"debug","@message":""}`, hclog.Debug, "", []any{}},
		{`{"@message":1}`, hclog.Info, `{"@message":1}`, nil},
		{`{"@message":"m","@level":1}`, hclog.Info, `{"@message":"m","@level":1}`, nil},
		{`{"@message":"m","@level":"loud"}`, hclog.Info, `{"@message":"m","@level":"loud"}`, nil},
		{`{"other":"json"}`, hclog.Info, `{"other":"json"}`, nil},
		{`{"@message"`, hclog.Info, `{"@message"`, nil},
		{``, hclog.Info, ``, nil},
	}
	for _, c := range cases {
		level, message, args := parseLog(c.line)
		if level != c.level || message != c.message || !cmp.Equal(args, c.args) {
			t.Errorf("%s: got %v %q %v", c.line, level, message, args)
		}
	}
}

func FuzzParseLog(f *testing.F) {
	f.Add(`{"@message":1}`)
	f.Add(`{"@level":"info","@message":"m","k":null}`)
	f.Add("[WARN] x")
	f.Fuzz(func(t *testing.T, line string) {
		o := &output{log: &throttle{logger: hclog.NewNullLogger()}}
		eachLine(strings.NewReader(line), o.line)
		for _, kept := range o.lines() {
			if len(kept) > keptLength+len("…") {
				t.Errorf("a line of %d bytes was kept", len(kept))
			}
		}
	})
}

func FuzzHandshake(f *testing.F) {
	f.Add("1|1|unix|/tmp/s|grpc")
	f.Add("1|1|tcp|127.0.0.1:80|grpc|")
	f.Add("1|1|tcp|[::1]:80|grpc|" + strings.Repeat("MIIB", 20))
	f.Fuzz(func(t *testing.T, line string) {
		clean, certified, err := checkHandshake(line)
		if (err == nil) != strings.HasPrefix(clean, "1|1|") {
			t.Errorf("%q gave %q, %v", line, clean, err)
		}
		if err == nil && (strings.Count(clean, "|") == 5) != certified {
			t.Errorf("%q is passed on as %q", line, clean)
		}
	})
}

// The last lines are kept, but of a panic the first ones.
func TestKeptLines(t *testing.T) {
	o := &output{log: &throttle{logger: hclog.NewNullLogger()}}
	for i := range 100 {
		o.line(fmt.Sprintf("line %d", i))
	}
	o.line(`{"@level":"info","@message":"routine"}`)
	o.line(`{"@level":"error","@message":"bad","n":1}`)
	if got := o.lines(); len(got) != keptLines || got[0] != "line 89" || got[len(got)-1] != "bad n=1" {
		t.Errorf("kept %q", got)
	}
	o.line("panic: oh")
	for i := range 100 {
		o.line(fmt.Sprintf("goroutine %d", i))
	}
	if got := o.lines(); len(got) != keptLines || got[0] != "panic: oh" || got[1] != "goroutine 0" {
		t.Errorf("kept %q", got)
	}
}

func TestErrorText(t *testing.T) {
	e := &Error{Plugin: "quest", Path: "/p/quest", Site: "layers.0.wq", Kind: ErrShutdown, Err: fmt.Errorf("exited with status 3"), Output: []string{"a", "b"}}
	want := "plugin quest (/p/quest): layers.0.wq: exited with status 3\nthe last lines that it printed:\n  | a\n  | b"
	if got := e.Error(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	e = &Error{Plugin: "/p/quest", Path: "/p/quest", Kind: ErrProtocol, Err: fmt.Errorf("%s", strings.Repeat("x", 10000))}
	if got := e.Error(); len(got) > longest+100 || strings.Contains(got, "(") {
		t.Errorf("got %d bytes: %.100s", len(got), got)
	}
}

func TestThrottle(t *testing.T) {
	log := &logBuffer{}
	th := &throttle{logger: log.logger()}
	for range 2 * loggedBytes / 8192 {
		th.log(hclog.Info, strings.Repeat("x", 8192))
	}
	if got, want := strings.Count(log.String(), "\n"), loggedBytes/(8192+loggedEntry); got != want {
		t.Errorf("%d long lines passed, want %d", got, want)
	}
	for range 2 * loggedBytes / loggedEntry {
		th.log(hclog.Info, "")
	}
	if longest := len(log.String()); longest > 2*loggedBytes {
		t.Errorf("%d bytes were passed on", longest)
	}
	th.close()
	if !strings.Contains(log.String(), "printed too much: the rest was left out: lines=") {
		t.Errorf("in the end it says %q", log.String()[len(log.String())-100:])
	}
}

// A plugin that prints without end fills neither the log nor the message.
func TestFlood(t *testing.T) {
	testlevel.Long(t, "prints megabytes")
	t.Parallel()
	log := &logBuffer{}
	c := start(t, "floods", sdk.KindQuantizer, Options{Logger: log.logger()})
	serves(t, c)
	c.Close()
	text := log.String()
	if len(text) > 2*loggedBytes || !strings.Contains(text, "printed too much: the rest was left out: lines=") {
		t.Errorf("%d bytes were logged, which end in\n%s", len(text), text[max(0, len(text)-300):])
	}
}

// What a plugin sends beside its answers is bounded, too.
func TestFloodedStreams(t *testing.T) {
	testlevel.Long(t, "sends megabytes")
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
		serves(t, c)
		if now := heap(); now > before+32<<20 {
			t.Fatalf("the host keeps %d MiB", (now-before)>>20)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// Whatever a plugin says is shown, and does nothing to a terminal: its log, its plain
// lines, its refusals and its panics.
func TestEscapes(t *testing.T) {
	testlevel.Long(t, "starts a plugin that prints")
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
