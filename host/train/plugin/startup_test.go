package plugin

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cage-qat/cage/internal/effort"
	"github.com/cage-qat/cage/sdk"
)

// Files that the system does not start are told apart, in one line.
func TestFilesThatDoNotStart(t *testing.T) {
	effort.Long(t, "starts many processes")
	t.Parallel()
	for text, want := range map[string]string{
		"#!/no/such/interpreter\n": "did not start: the interpreter of ",
		"\x7fNOT a program\n":      " is neither a program for this machine nor a script with #! and an interpreter in its first line",
	} {
		path := filepath.Join(t.TempDir(), "plugin")
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		for range effort.Choose(2, 5) { // how the supervisor ends is not told, and differs
			_, err := Start(t.Context(), direct(path), sdk.KindQuantizer, Options{})
			check(t, err, ErrStart, want, path)
			if lines := strings.Count(err.Error(), "\n"); lines > 0 {
				t.Errorf("the message has %d more lines:\n%v", lines, err)
			}
		}
	}
}

// A plugin of both kinds is asked about the wanted kind alone: a fault of the other is nobody's concern.
func TestFaultOfTheOtherKind(t *testing.T) {
	effort.Long(t, "starts several plugins")
	t.Parallel()
	for range effort.Choose(1, 3) {
		c := start(t, "both-one-dies", sdk.KindQuantizer, Options{})
		if _, err := c.Quantize(t.Context(), site("")); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	_, err := Start(t.Context(), link(t, "both-one-dies"), sdk.KindOptimizer, Options{})
	check(t, err, ErrStart, "exited with status 3")
}

func TestTimeoutVariable(t *testing.T) {
	effort.Long(t, "waits for a plugin that hangs")
	t.Setenv(TimeoutVariable, "1s")
	if got, err := (Options{CallTimeout: time.Minute}).withDefaults(); err != nil || got.StartTimeout != time.Second || got.CallTimeout != time.Minute {
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
	if got, err := (Options{}).withDefaults(); err != nil || got.StartTimeout != DefaultTimeout || got.CallTimeout != DefaultTimeout {
		t.Errorf("by default: %+v, %v", got, err)
	}
}

// Entries of a log are read from standard output, too, as those of a plugin in another language.
func TestEntriesOnStandardOutput(t *testing.T) {
	t.Parallel()
	log := &logBuffer{}
	o := &output{log: newThrottle(log.logger())}
	o.line(`{"@level":"error","@message":"no codebook","size":3}`)
	if text := log.String(); !strings.Contains(text, "[ERROR] no codebook: size=3") {
		t.Errorf("logged %q", text)
	}
	path := filepath.Join(t.TempDir(), "plugin")
	script := "#!/bin/sh\necho '1|1|unix|/nonexistent/socket|grpc'\necho '{\"@level\":\"error\",\"@message\":\"no codebook\"}'\nexit 3\n"
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := Start(t.Context(), direct(path), sdk.KindQuantizer, Options{Logger: log.logger()})
	check(t, err, ErrStart, "exited with status 3", "| no codebook")
	if text := log.String(); !strings.Contains(text, "[ERROR] plugin: no codebook") {
		t.Errorf("logged %q", text)
	}
}

// With a plugin that knows how, the connection is encrypted and both sides prove who
// they are; others work without.
func TestConnectionIsEncrypted(t *testing.T) {
	effort.Long(t, "starts several plugins")
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

// Only the user can enter the directory of the socket, wherever temporary files lie.
func TestSocketDirectoryIsPrivate(t *testing.T) {
	effort.Long(t, "starts several plugins")
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
