package plugin

import (
	"fmt"
	"strings"
	"testing"

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
		{`{"@level":"warn","@message":"m","b":1,"a":"x","@timestamp":"t"}`, hclog.Warn, "m",
			[]any{"a", "x", "b", 1.0}},
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
		o := &output{log: hclog.NewNullLogger()}
		eachLine(strings.NewReader(line), o.line)
		for _, kept := range o.lines() {
			if len(kept) > keptLength+len("…") {
				t.Errorf("a line of %d bytes was kept", len(kept))
			}
		}
	})
}

// TestKeptLines checks that the last lines are kept, but of a panic the first ones.
func TestKeptLines(t *testing.T) {
	o := &output{log: hclog.NewNullLogger()}
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
	e := &Error{Plugin: "quest", Path: "/p/quest", Site: "layers.0.wq", Kind: ErrShutdown,
		Err: fmt.Errorf("exited with status 3"), Output: []string{"a", "b"}}
	want := "plugin quest (/p/quest): layers.0.wq: exited with status 3\nthe last lines that it " +
		"printed:\n  | a\n  | b"
	if got := e.Error(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	e = &Error{Plugin: "/p/quest", Path: "/p/quest", Kind: ErrProtocol,
		Err: fmt.Errorf("%s", strings.Repeat("x", 10000))}
	if got := e.Error(); len(got) > longest+100 || strings.Contains(got, "(") {
		t.Errorf("got %d bytes: %.100s", len(got), got)
	}
}

// TestEscapes checks that a plugin's log, plain lines, refusals and panics are shown without effect
// on the terminal.
func TestEscapes(t *testing.T) {
	testlevel.Long(t, "starts a plugin that prints")
	log := &logBuffer{}
	c := start(t, "escapes", sdk.KindQuantizer, Options{Logger: log.logger()})
	_, refusal := c.Quantize(t.Context(), site("escape"))
	_, panicked := c.Quantize(t.Context(), site("escape-panic"))
	c.Close()
	check(t, refusal, ErrRefused, `no\x1b[2J\u202e`, "\n  cage: all is well")
	check(t, panicked, ErrFailed, `no\x1b[2J\u202e`, "\n  cage: all is well")
	for _, want := range []string{`plain \x1b[2J\u202e\u200b\u2028?`, `two\nlines \x1b[2J`,
		`k\x1b[1m=v\u202e\n`, `\x1b[3m`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
	for what, text := range map[string]string{"log": log.String(), "refusal": refusal.Error(),
		"panic": panicked.Error()} {
		if safetext.Text(text) != text {
			t.Errorf("the %s is %q", what, text)
		}
	}
}
