package plugin

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// behaviours maps names to plugins. The tests start their own binary as the plugin: under such a
// name, given by a symbolic link, it behaves as that plugin and runs no tests.
var behaviours = map[string]func(){
	"quantizer": func() { sdk.ServeQuantizer(testQuantizer{}) },
	"optimizer": func() { sdk.ServeOptimizer(testOptimizer{}) },
	"both":      func() { sdk.Serve(testQuantizer{}, testOptimizer{}) },

	"faulty-optimizer": func() { sdk.ServeOptimizer(faultyOptimizer{}) },
	"both-one-dies":    func() { sdk.Serve(testQuantizer{}, deadlyOptimizer{}) },

	"crashes-at-start": func() {
		fmt.Fprintln(os.Stderr, "the codebook is missing")
		os.Exit(3)
	},
	"panics-at-start": func() { panic("no codebook") },
	"exits-silently":  func() {},
	"hangs-at-start":  func() { time.Sleep(time.Hour) },
	"works-long": func() {
		work(2 * brief)
		sdk.ServeQuantizer(testQuantizer{})
	},
	"works-and-hangs": func() {
		work(brief / 2)
		time.Sleep(time.Hour)
	},
	"works-and-dies": func() {
		work(brief / 2)
		os.Exit(3)
	},
	"works-forever": func() { work(time.Hour) },
	"hangs-after-handshake": func() {
		l, err := net.Listen("unix", filepath.Join(os.Getenv("PLUGIN_UNIX_SOCKET_DIR"), "s"))
		if err != nil {
			panic(err)
		}
		fmt.Printf("1|2|unix|%s|grpc\n", l.Addr())
		time.Sleep(time.Hour)
	},
	"closes-its-output": func() {
		_ = os.Stdout.Close()
		time.Sleep(time.Hour)
	},
	"prints-hello": func() {
		fmt.Println("hello")
		sdk.ServeQuantizer(testQuantizer{})
	},
	"prints-endless-line": func() {
		w := bufio.NewWriter(os.Stdout)
		for {
			if _, err := w.WriteString(strings.Repeat("x", 4096)); err != nil {
				return
			}
		}
	},
	"tells-socket": func() {
		dir := os.Getenv("PLUGIN_UNIX_SOCKET_DIR")
		info, err := os.Stat(dir)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(os.Stderr, "socket directory %v, %d bytes\n", info.Mode(), len(dir))
		sdk.ServeQuantizer(testQuantizer{})
	},
	"says-certificate":   says("1|2|unix|/tmp/s|grpc|" + strings.Repeat("MIIB", 50)),
	"says-old-protocol":  says("1|1|unix|/tmp/s|grpc"),
	"says-new-protocol":  says("1|3|unix|/tmp/s|grpc"),
	"says-new-handshake": says("2|1|unix|/tmp/s|grpc"),
	"says-net-rpc":       says("1|2|unix|/tmp/s|netrpc"),
	"says-dead-socket":   says("1|2|unix|/nonexistent/socket|grpc"),
	"knows-no-cookie": func() {
		os.Unsetenv("CAGE_PLUGIN")
		sdk.ServeQuantizer(testQuantizer{})
	},
	"noisy": func() {
		for _, line := range []string{
			`{"@message":1}`, `{"@message":"x","@level":2}`, `{"@timestamp":3}`,
			`{"@level":"warn","@message":"careful","k":{"a":[1]}}`,
			`{`, `null`, "\xff\xfe not UTF-8", strings.Repeat("long ", 40000), "[ERROR] something",
		} {
			fmt.Fprintln(os.Stderr, line)
		}
		sdk.ServeQuantizer(testQuantizer{})
	},
	"escapes": func() { // prints control sequences for the terminal
		fmt.Fprintln(os.Stderr, "plain \x1b[2J\u202e\u200b\u2028\x9b")
		fmt.Fprintln(os.Stderr,
			`{"@level":"warn","@message":"two\nlines \u001b[2J","k\u001b[1m":"v\u202e\n","deep":{"a\u001b":["\u001b[3m"]}}`)
		sdk.ServeQuantizer(testQuantizer{})
	},
	"ignores-its-host": func() { // it does not notice that standard input is closed
		r, w, err := os.Pipe()
		if err != nil {
			panic(err)
		}
		os.Stdin = r
		sdk.ServeQuantizer(testQuantizer{})
		runtime.KeepAlive(w) // otherwise the collector closes it, which ends standard input
	},
	"forks": func() { // leaves a child process that holds its pipes open
		child := exec.Command("sleep", "300")
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		if err := child.Start(); err != nil {
			panic(err)
		}
		slog.Warn("forked", "pid", child.Process.Pid)
		sdk.ServeQuantizer(testQuantizer{})
	},
	"host": hostProcess,
}

func says(handshake string) func() {
	return func() {
		fmt.Println(handshake)
		time.Sleep(time.Hour)
	}
}

func TestMain(m *testing.M) {
	if behave, ok := behaviours[filepath.Base(os.Args[0])]; ok {
		behave()
		return
	}
	// Programs built with -race wait for a second before they exit, which is all the time that a
	// plugin has to exit.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// hostProcess is a host that starts the plugin named by TEST_PLUGIN, prints its process ID, and
// waits.
func hostProcess() {
	c, err := Start(context.Background(), direct(os.Getenv("TEST_PLUGIN")), sdk.KindQuantizer,
		Options{StartTimeout: patience})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(c.PID())
	time.Sleep(time.Hour)
}

// testQuantizer quantizes to integers; its parameter "do" makes it misbehave.
type testQuantizer struct{}

func (testQuantizer) Describe() sdk.Description {
	return sdk.Description{Name: "test", Version: "1", Doc: "Rounds.", Parameters: []sdk.Parameter{
		sdk.Int("bits", 4, 2, 8, "bits per value"),
		sdk.String("do", "", "how to misbehave"),
	}}
}

func (testQuantizer) Quantize(
	b *program.Builder, x program.Value, site sdk.Site,
) (sdk.Quantized, error) {
	switch site.Text("do") {
	case "escape":
		return sdk.Quantized{}, sdk.Refuse("no\x1b[2J\u202e\ncage: all is well")
	case "escape-panic":
		panic("no\x1b[2J\u202e\ncage: all is well")
	case "refuse":
		return sdk.Quantized{}, sdk.Refuse("rows of 7 cannot be packed: use a multiple of 8")
	case "error":
		return sdk.Quantized{}, errors.New("the codebook is missing")
	case "panic":
		var none []int
		_ = none[site.Int("bits")]
	case "undeclared":
		site.Float("beta")
	case "exit":
		fmt.Println("last words on stdout")
		fmt.Fprintln(os.Stderr, "last words on stderr")
		os.Exit(7)
	case "die":
		go func() { panic("from a goroutine") }()
		time.Sleep(time.Hour)
	case "hang":
		time.Sleep(time.Hour)
	case "work":
		work(2 * brief)
	case "log":
		slog.With("a", 1).WithGroup("g").Warn("from the author", "b", "two")
		fmt.Println("printed by the author")
	case "large":
		return sdk.Quantized{Value: x.Add(b.Table(make([]float64, 1<<22), 1<<22).
			Slice([]int{0}, []int{1}, []int{1}).Reshape())}, nil
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return sdk.Quantized{Value: x.Round(), Codes: x.Round().Convert(program.Int)}, nil
}

// testOptimizer is gradient descent with momentum.
type testOptimizer struct{}

func (testOptimizer) Describe() sdk.Description {
	return sdk.Description{Name: "test",
		Parameters: []sdk.Parameter{sdk.Float("momentum", 0.9, 0, 1, "share of the last direction")}}
}

// faultyOptimizer returns an invalid description.
type faultyOptimizer struct{ testOptimizer }

func (faultyOptimizer) Describe() sdk.Description {
	return sdk.Description{Name: "test",
		Parameters: []sdk.Parameter{sdk.Float("momentum", 2, 0, 1, "share of the last direction")}}
}

// deadlyOptimizer ends the process at the second call of Describe, which is that of the host; the
// first is that of package sdk.
type deadlyOptimizer struct{ testOptimizer }

var asked atomic.Bool

func (d deadlyOptimizer) Describe() sdk.Description {
	if asked.Swap(true) {
		os.Exit(3)
	}
	return d.testOptimizer.Describe()
}

func (testOptimizer) Init(b *program.Builder, _ program.Value, t sdk.Tensor) (sdk.State, error) {
	return sdk.State{"m": b.Zeros(t.Shape...)}, nil
}

func (testOptimizer) Update(
	_ *program.Builder, in sdk.UpdateInput, t sdk.Tensor,
) (program.Value, sdk.State, error) {
	m := in.State["m"].Scale(t.Float("momentum")).Add(in.Gradient)
	return m, sdk.State{"m": m}, nil
}

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

// tooShort is a time limit for plugins that hang.
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

// site returns a site for the test quantizer; do says how to misbehave.
func site(do string) sdk.Site {
	return sdk.Site{Role: sdk.RoleWeight, Name: "layers.0.wq", Shape: []int{4},
		Values: sdk.NewValues(map[string]any{"bits": 4, "do": do})}
}

// serves fails the test unless the plugin answers.
func serves(t *testing.T, c *Client) {
	t.Helper()
	if _, err := c.Quantize(t.Context(), site("")); err != nil {
		t.Fatal(err)
	}
}

// check fails the test unless err is an *Error of the given kind that names the plugin and whose
// message contains all words.
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

// direct returns the executable at a known path.
func direct(path string) Executable { return Executable{Name: filepath.Base(path), Path: path} }
