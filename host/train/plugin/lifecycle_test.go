package plugin

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk"
)

func TestQuantizer(t *testing.T) {
	c := start(t, "quantizer", sdk.KindQuantizer, Options{})
	if d := c.Description(); d.Name != "test" || len(d.Parameters) != 2 ||
		d.Parameters[0].Default != 4 {
		t.Errorf("description %+v", d)
	}
	values, err := c.Resolve(map[string]any{"bits": int64(3)})
	if err != nil || values.Int("bits") != 3 || values.Text("do") != "" {
		t.Errorf("resolved %v, %v", values.Map(), err)
	}
	if _, err := c.Resolve(map[string]any{"bit": 3}); err == nil {
		t.Error("an unknown parameter was accepted")
	}
	got, err := c.Quantize(t.Context(), site(""))
	if err != nil {
		t.Fatal(err)
	}
	want, err := sdk.BuildQuantizer(testQuantizer{}, site(""))
	if err != nil {
		t.Fatal(err)
	}
	if got.Program.Hash() != want.Program.Hash() {
		t.Errorf("got\n%swant\n%s", got.Program, want.Program)
	}
	if _, err := c.Program(t.Context(), sdk.Tensor{}); !errors.Is(err, ErrKind) {
		t.Errorf("a quantizer was asked for an optimizer: %v", err)
	}
	if len(c.SHA256()) != 64 {
		t.Errorf("hash %s", c.SHA256())
	}
}

func TestOptimizer(t *testing.T) {
	for _, behaviour := range []string{"optimizer", "both"} {
		c := start(t, behaviour, sdk.KindOptimizer, Options{})
		tensor := sdk.Tensor{Name: "w", Role: sdk.TensorMatrix, Shape: []int{2, 3},
			Values: sdk.NewValues(map[string]any{"momentum": 0.5})}
		got, err := c.Program(t.Context(), tensor)
		if err != nil {
			t.Fatal(err)
		}
		want, err := sdk.BuildOptimizer(testOptimizer{}, tensor)
		if err != nil {
			t.Fatal(err)
		}
		if got.Update.Hash() != want.Update.Hash() || got.Init.Hash() != want.Init.Hash() ||
			len(got.State) != 1 || got.State[0].Name != "m" {
			t.Errorf("%s: got %+v", behaviour, got)
		}
	}
}

func TestCancelledCall(t *testing.T) {
	t.Parallel()
	c := start(t, "quantizer", sdk.KindQuantizer, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := c.Quantize(ctx, site("hang"))
	check(t, err, context.DeadlineExceeded, "layers.0.wq: context deadline exceeded")
	if _, err := c.Quantize(t.Context(), sdk.Site{Role: "bias", Shape: []int{1}}); err == nil {
		t.Error("a site with an unknown role was sent")
	}
}

// TestPlainGRPC checks that a plugin without go-plugin, as in another language, works and exits.
func TestPlainGRPC(t *testing.T) {
	t.Parallel()
	c := start(t, "plain-grpc", sdk.KindQuantizer, Options{})
	serves(t, c)
	c.Close()
	p, _ := c.launch.current()
	if got := p.ending(); got != "exited with status 0" {
		t.Errorf("the plugin %s", got)
	}
}

// TestLargeConstant checks that large constants, here 2²² numbers (32 MiB), are accepted for large
// tensors but not for small ones.
func TestLargeConstant(t *testing.T) {
	testlevel.Long(t, "sends large messages")
	c := start(t, "quantizer", sdk.KindQuantizer, Options{})
	_, err := c.Quantize(t.Context(), site("large"))
	check(t, err, ErrProtocol, "constant")
	large := site("large")
	large.Shape = []int{1024, 1024}
	got, err := c.Quantize(t.Context(), large)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(got.Program.Nodes[0].Attr.Floats); n != 1<<22 {
		t.Errorf("%d numbers arrived", n)
	}
}

func TestStoppedProcess(t *testing.T) {
	testlevel.Long(t, "waits for a process that stands still")
	t.Parallel()
	c := start(t, "quantizer", sdk.KindQuantizer, Options{CallTimeout: tooShort})
	if err := syscall.Kill(c.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for !strings.Contains("T?", processState(c.PID())) {
		time.Sleep(time.Millisecond)
	}
	_, err := c.Quantize(t.Context(), site(""))
	check(t, err, ErrTimeout)
	begin := time.Now()
	c.Close()
	if took := time.Since(begin); took > 3*time.Second {
		t.Errorf("Close took %v", took)
	}
	if alive(c.PID()) {
		t.Error("the process is still there")
	}
}

func TestCloseEndsGracefully(t *testing.T) {
	t.Parallel()
	c := start(t, "quantizer", sdk.KindQuantizer, Options{})
	c.Close()
	c.Close()
	<-c.Done()
	p, _ := c.launch.current()
	if got := p.ending(); got != "exited with status 0" {
		t.Errorf("the plugin %s", got)
	}
	_, err := c.Quantize(t.Context(), site(""))
	check(t, err, ErrShutdown, "was closed")
}

func TestContextEndsThePlugin(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	c, err := Start(ctx, link(t, "quantizer"), sdk.KindQuantizer, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	cancel()
	<-c.Done()
	_, err = c.Quantize(t.Context(), site(""))
	check(t, err, ErrShutdown, "context canceled")

	_, err = Start(ctx, link(t, "hangs-at-start"), sdk.KindQuantizer, Options{})
	check(t, err, context.Canceled, "stopped")
}

// TestChildrenOfThePlugin checks that a child of the plugin dies with it, and does not delay Close.
func TestChildrenOfThePlugin(t *testing.T) {
	testlevel.Long(t, "starts processes below a plugin")
	t.Parallel()
	log := &logBuffer{}
	c := start(t, "forks", sdk.KindQuantizer, Options{Logger: log.logger()})
	var child int
	for _, line := range strings.Split(log.String(), "\n") {
		if _, pid, ok := strings.Cut(line, "pid="); ok {
			var err error
			if child, err = strconv.Atoi(strings.TrimSpace(pid)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if child == 0 {
		t.Fatalf("no child in the log:\n%s", log)
	}
	begin := time.Now()
	c.Close()
	if took := time.Since(begin); took > 3*time.Second {
		t.Errorf("Close took %v", took)
	}
	awaitDeath(t, child)
}

// TestOutput checks that all output of a plugin is logged, and that no line does harm.
func TestOutput(t *testing.T) {
	log := &logBuffer{}
	c := start(t, "noisy", sdk.KindQuantizer, Options{Logger: log.logger()})
	if _, err := c.Quantize(t.Context(), site("log")); err != nil {
		t.Fatal(err)
	}
	c.Close()
	for _, want := range []string{
		`{"@message":1}`, `careful: k=map[a:[1]]`, `not UTF-8`, "[ERROR] something",
		`[WARN]  noisy: from the author: a=1 g=map[b:two]`, `[INFO]  noisy: printed by the author`,
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%.3000s", want, log)
		}
	}
}

func TestPinnedChecksum(t *testing.T) {
	testlevel.Long(t, "starts several plugins")
	c := start(t, "quantizer", sdk.KindQuantizer, Options{})
	start(t, "quantizer", sdk.KindQuantizer, Options{SHA256: strings.ToUpper(c.SHA256())})
	_, err := Start(t.Context(), link(t, "quantizer"), sdk.KindQuantizer,
		Options{SHA256: strings.Repeat("0", 64)})
	check(t, err, ErrChecksum, "its SHA-256 is "+c.SHA256())
	_, err = Start(t.Context(), direct(filepath.Join(t.TempDir(), "none")), sdk.KindQuantizer,
		Options{})
	check(t, err, ErrNotFound, "no such file")
}

// TestChangedExecutable checks the error of a restart with another executable, if none is pinned.
func TestChangedExecutable(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "quantizer")
	own, err := os.ReadFile(link(t, "quantizer").Path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, own, 0o700); err != nil {
		t.Fatal(err)
	}
	c, err := Start(t.Context(), direct(path), sdk.KindQuantizer, Options{})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := os.WriteFile(path, append(own, 0), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err = c.Restart(t.Context())
	check(t, err, ErrChecksum, "the executable, or a module of the script, has changed since the run "+
		"started: put back what has the SHA-256 "+c.SHA256())
}

// TestLogLevel checks that plugins are given a level that the protocol has.
func TestLogLevel(t *testing.T) {
	for level, want := range map[hclog.Level]string{hclog.NoLevel: "info", hclog.Trace: "trace",
		hclog.Error: "error", hclog.Off: "error"} {
		env := environment(hclog.New(&hclog.LoggerOptions{Level: level}))
		if !slices.Contains(env, "CAGE_PLUGIN_LOG="+want) {
			t.Errorf("%v: %q", level, env)
		}
	}
}

// TestTemporaryDirectory checks that a long path of the temporary directory does not break the
// socket, and that nothing is left in the temporary directory.
func TestTemporaryDirectory(t *testing.T) {
	testlevel.Long(t, "starts several plugins")
	long := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	if err := os.Mkdir(long, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", long)
	start(t, "quantizer", sdk.KindQuantizer, Options{}).Close()

	shortDir, err := os.MkdirTemp("/tmp", "c")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(shortDir)
	t.Setenv("TMPDIR", shortDir)
	c, err := Start(t.Context(), link(t, "quantizer"), sdk.KindQuantizer, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if left, err := filepath.Glob(filepath.Join(shortDir, "plugin*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// TestFilesThatDoNotStart checks the one-line errors for files that the system does not start.
func TestFilesThatDoNotStart(t *testing.T) {
	testlevel.Long(t, "starts many processes")
	t.Parallel()
	for text, want := range map[string]string{
		"#!/no/such/interpreter\n": "did not start: the interpreter of ",
		"\x7fNOT a program\n": " is neither a program for this machine nor a script whose first " +
			"line names an interpreter (#!)",
	} {
		path := filepath.Join(t.TempDir(), "plugin")
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		_, err := Start(t.Context(), direct(path), sdk.KindQuantizer, Options{})
		check(t, err, ErrStart, want, path)
		if lines := strings.Count(err.Error(), "\n"); lines > 0 {
			t.Errorf("the message has %d more lines:\n%v", lines, err)
		}
	}
}

// TestFaultOfTheOtherKind checks that a plugin of both kinds is asked only about the wanted kind,
// so that a fault of the other kind does not matter.
func TestFaultOfTheOtherKind(t *testing.T) {
	testlevel.Long(t, "starts several plugins")
	t.Parallel()
	for range testlevel.Choose(1, 3) {
		c := start(t, "both-one-dies", sdk.KindQuantizer, Options{})
		serves(t, c)
		c.Close()
	}
	_, err := Start(t.Context(), link(t, "both-one-dies"), sdk.KindOptimizer, Options{})
	check(t, err, ErrStart, "exited with status 3")
}

func TestTimeoutVariable(t *testing.T) {
	testlevel.Long(t, "waits for a plugin that hangs")
	t.Setenv(TimeoutVariable, "1s")
	if got, err := (Options{CallTimeout: time.Minute}).withDefaults(); err != nil ||
		got.StartTimeout != time.Second || got.CallTimeout != time.Minute {
		t.Errorf("%+v, %v", got, err)
	}
	_, err := Start(t.Context(), link(t, "hangs-at-start"), sdk.KindQuantizer, Options{})
	check(t, err, ErrTimeout, "was not ready within 1s")
	for _, text := range []string{"10", "soon", "-1s", "1ms"} {
		t.Setenv(TimeoutVariable, text)
		_, err := Start(t.Context(), link(t, "quantizer"), sdk.KindQuantizer, Options{})
		check(t, err, ErrStart, "CAGE_PLUGIN_TIMEOUT is", "want a time of at least 1s, such as 30s or 2m")
	}
	t.Setenv(TimeoutVariable, "")
	if got, err := (Options{}).withDefaults(); err != nil || got.StartTimeout != DefaultTimeout ||
		got.CallTimeout != DefaultTimeout {
		t.Errorf("by default: %+v, %v", got, err)
	}
}

// TestEntriesOnStandardOutput checks that log entries are parsed on standard output, too, where
// plugins in other languages may print them.
func TestEntriesOnStandardOutput(t *testing.T) {
	t.Parallel()
	log := &logBuffer{}
	o := &output{log: log.logger()}
	o.line(`{"@level":"error","@message":"no codebook","size":3}`)
	if text := log.String(); !strings.Contains(text, "[ERROR] no codebook: size=3") {
		t.Errorf("logged %q", text)
	}
	path := filepath.Join(t.TempDir(), "plugin")
	script := "#!/bin/sh\necho '1|2|unix|/nonexistent/socket|grpc'\necho " +
		"'{\"@level\":\"error\",\"@message\":\"no codebook\"}'\nexit 3\n"
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := Start(t.Context(), direct(path), sdk.KindQuantizer, Options{Logger: log.logger()})
	check(t, err, ErrStart, "exited with status 3", "| no codebook")
	if text := log.String(); !strings.Contains(text, "[ERROR] plugin: no codebook") {
		t.Errorf("logged %q", text)
	}
}

// TestConnectionIsEncrypted checks that the connection is encrypted, with certificates of both
// sides, if the plugin supports it, and that other plugins work without encryption.
func TestConnectionIsEncrypted(t *testing.T) {
	testlevel.Long(t, "starts several plugins")
	for behaviour, want := range map[string]bool{"quantizer": true, "plain-grpc": false} {
		c := start(t, behaviour, sdk.KindQuantizer, Options{})
		if _, err := c.Quantize(t.Context(), site("")); err != nil {
			t.Errorf("%s: %v", behaviour, err)
		}
		if got := c.launch.certified.Load(); got != want {
			t.Errorf("%s: encrypted %v, want %v", behaviour, got, want)
		}
	}
}

// TestSocketDirectoryIsPrivate checks that only the user can enter the directory of the socket,
// wherever temporary files are.
func TestSocketDirectoryIsPrivate(t *testing.T) {
	testlevel.Long(t, "starts several plugins")
	long := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	if err := os.Mkdir(long, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{os.TempDir(), long} {
		t.Setenv("TMPDIR", dir)
		log := &logBuffer{}
		start(t, "tells-socket", sdk.KindQuantizer, Options{Logger: log.logger()}).Close()
		said := regexp.MustCompile(`socket directory (\S+), (\d+) bytes`).FindStringSubmatch(log.String())
		if said == nil {
			t.Fatalf("the log is %q", log)
		}
		if length, err := strconv.Atoi(said[2]); err != nil || length > 85 || said[1] != "drwx------" {
			t.Errorf("TMPDIR %.60s: the directory is %s, of %s bytes", dir, said[1], said[2])
		}
	}
}
