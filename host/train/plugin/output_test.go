package plugin

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"
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
		o := &output{log: newThrottle(hclog.NewNullLogger())}
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
	o := &output{log: newThrottle(hclog.NewNullLogger())}
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
