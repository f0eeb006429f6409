package plugin

import (
	"bytes"
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/sdk"
)

// link makes the test binary available under the name of a behaviour.
func link(t testing.TB, behaviour string) Executable {
	t.Helper()
	if _, ok := behaviours[behaviour]; !ok {
		t.Fatalf("there is no behaviour %q", behaviour)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), behaviour)
	if err := os.Symlink(self, path); err != nil {
		t.Fatal(err)
	}
	return direct(path)
}

// tooShort is a time limit for plugins that never come to an end.
const tooShort = 300 * time.Millisecond

func start(t testing.TB, behaviour string, kind sdk.Kind, opts Options) *Client {
	t.Helper()
	opts.StartTimeout = cmp.Or(opts.StartTimeout, patience)
	c, err := Start(t.Context(), link(t, behaviour), kind, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// site asks the test quantizer for a site; do says how to misbehave.
func site(do string) sdk.Site {
	return sdk.Site{Role: sdk.RoleWeight, Name: "layers.0.wq", Shape: []int{4}, Values: sdk.NewValues(map[string]any{"bits": 4, "do": do})}
}

// check fails unless err is an *Error of the kind that says all of the words, in
// one readable message.
func check(t testing.TB, err error, kind error, words ...string) {
	t.Helper()
	typed, ok := errors.AsType[*Error](err)
	if !ok || !errors.Is(err, kind) {
		t.Fatalf("got %v, want an *Error of the kind %q", err, kind)
	}
	if typed.Plugin == "" {
		t.Errorf("%v: names no plugin", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the message does not say %q:\n%v", w, err)
		}
	}
}

// logBuffer is a log that a test can read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logBuffer) logger() hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Output: l, Level: hclog.Debug})
}

// direct is an executable at a known path.
func direct(path string) Executable { return Executable{Name: filepath.Base(path), Path: path} }
