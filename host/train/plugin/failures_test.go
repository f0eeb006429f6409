package plugin

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk"
)

func TestFailuresAtStart(t *testing.T) {
	testlevel.Long(t, "starts many plugins")
	cases := []struct {
		behaviour string
		kind      error
		words     []string
	}{
		{"crashes-at-start", ErrStart,
			[]string{"exited with status 3 before it was ready", "| the codebook is missing"}},
		{"panics-at-start", ErrStart, []string{"exited with status 2", "| panic: no codebook"}},
		{"exits-silently", ErrStart, []string{"exited with status 0"}},
		{"hangs-at-start", ErrTimeout,
			[]string{"was not ready within 300ms (CAGE_PLUGIN_TIMEOUT=1m allows a minute)"}},
		{"hangs-after-handshake", ErrTimeout, []string{"was not ready within 300ms"}},
		{"closes-its-output", ErrTimeout, []string{"was not ready within 300ms"}},
		{"prints-hello", ErrProtocol,
			[]string{`printed "hello" instead of the handshake; is it a cage plugin?`}},
		{"prints-endless-line", ErrProtocol, []string{`printed "xxxx`}},
		{"says-certificate", ErrStart, []string{"did not start: error parsing server cert"}},
		{"certifies-and-is-plain", ErrStart, []string{"authentication handshake failed"}},
		{"certifies-another", ErrStart, []string{"authentication handshake failed"}},
		{"says-old-protocol", ErrVersion,
			[]string{"speaks version 1 of the plugin protocol, this host speaks 2: rebuild the plugin"}},
		{"says-new-protocol", ErrVersion,
			[]string{"speaks version 3 of the plugin protocol, this host speaks 2: update cage"}},
		{"says-new-handshake", ErrVersion, []string{"go-plugin handshake"}},
		{"says-net-rpc", ErrStart, []string{"unsupported plugin protocol"}},
		{"says-dead-socket", ErrStart,
			[]string{"cannot be reached at the address of its handshake: connection error",
				"/nonexistent/socket"}},
		{"knows-no-cookie", ErrStart,
			[]string{"exited with status 1", "is a plugin of cage: the quantizer test"}},
		{"optimizer", ErrKind,
			[]string{"is of the kind optimizer, but a plugin of the kind quantizer is needed here"}},
		{"faulty-optimizer", ErrKind,
			[]string{"is of the kind optimizer, but a plugin of the kind quantizer is needed here"}},
		{"serves-nothing", ErrProtocol, []string{"serves neither"}},
	}
	for _, c := range cases {
		t.Run(c.behaviour, func(t *testing.T) {
			t.Parallel()
			begin := time.Now()
			exe := link(t, c.behaviour)
			opts := Options{}
			if c.kind == ErrTimeout {
				opts.StartTimeout = tooShort
			}
			client, err := Start(t.Context(), exe, sdk.KindQuantizer, opts)
			if err == nil {
				client.Close()
			}
			check(t, err, c.kind, append(c.words, "plugin "+c.behaviour, exe.Path)...)
			if took := time.Since(begin); took > 10*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

// callFailures lists misbehaviours of the test quantizer in a call, selected by its parameter do,
// and the expected errors.
var callFailures = []struct {
	do    string
	kind  error
	words []string
}{
	{"refuse", ErrRefused, []string{"layers.0.wq: rows of 7 cannot be packed: use a multiple of 8"}},
	{"error", ErrFailed, []string{"layers.0.wq: the codebook is missing"}},
	{"panic", ErrFailed,
		[]string{"panic: runtime error: index out of range [4] with length 0 (behaviours_test.go:"}},
	{"undeclared", ErrFailed, []string{`reads the parameter "beta", which it does not declare`}},
	{"exit", ErrShutdown, []string{"exited with status 7", "| last words on stdout",
		"| last words on stderr"}},
	{"die", ErrShutdown, []string{"exited with status 2", "| panic: from a goroutine"}},
	{"kill", ErrShutdown, []string{"was ended by signal: killed"}},
	{"hang", ErrTimeout, []string{"did not answer within 300ms"}},
}

func TestFailuresInACall(t *testing.T) {
	t.Parallel()
	unharmed := start(t, "quantizer", sdk.KindQuantizer, Options{}) // still serves after errors
	for _, c := range callFailures {
		t.Run(c.do, func(t *testing.T) {
			client := unharmed
			switch c.kind {
			case ErrTimeout:
				client = start(t, "quantizer", sdk.KindQuantizer, Options{CallTimeout: tooShort})
			case ErrShutdown:
				client = start(t, "quantizer", sdk.KindQuantizer, Options{})
			}
			_, err := client.Quantize(t.Context(), site(c.do))
			check(t, err, c.kind, append(c.words, "plugin quantizer", "layers.0.wq")...)
		})
	}
	if _, err := unharmed.Quantize(t.Context(), site("")); err != nil {
		t.Errorf("after errors the plugin is of no use: %v", err)
	}
}

func TestHostileDescriptions(t *testing.T) {
	testlevel.Long(t, "starts many plugins")
	for name, d := range hostileDescriptions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Start(t.Context(), link(t, "answers-"+name), sdk.KindQuantizer, Options{})
			check(t, err, d.kind, d.says)
		})
	}
}

// TestHostileAnswers checks the errors for all hostile answers of one plugin, then a good answer.
func TestHostileAnswers(t *testing.T) {
	t.Parallel()
	c := start(t, "answers", sdk.KindQuantizer, Options{})
	for _, a := range hostileAnswers {
		_, err := c.Quantize(t.Context(), site(""))
		t.Run(a.name, func(t *testing.T) { check(t, err, a.kind, a.says) })
	}
	if _, err := c.Quantize(t.Context(), site("")); err != nil {
		t.Errorf("the good answer: %v", err)
	}
}

// behaved lists the behaviours that are not hostile.
var behaved = []string{"quantizer", "optimizer", "both", "host", "plain-grpc", "trainable",
	"refresher", "tells-socket", "answers", "opaque", "search", "works-long"}

// hostileCases returns the sorted names of all hostile cases in these tests, behaviours and
// misbehaviours in calls, as in the first column of docs/reference/security.md.
func hostileCases() []string {
	var names []string
	for name := range maps.Keys(behaviours) {
		if !slices.Contains(behaved, name) {
			names = append(names, name)
		}
	}
	for _, a := range hostileAnswers {
		names = append(names, "answers-"+a.name)
	}
	for _, c := range callFailures {
		names = append(names, "call-"+c.do)
	}
	for _, c := range opaqueFailures {
		names = append(names, "step-"+c.do)
	}
	for _, c := range searchFailures {
		names = append(names, "search-"+c.do)
	}
	names = append(names, "step-late", "search-late")
	for _, do := range []string{"escape", "escape-panic"} {
		names = append(names, "call-"+do)
	}
	slices.Sort(names)
	return names
}

// TestSecurityPage checks that the page on security lists every hostile case with an existing test.
func TestSecurityPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/security.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := testNames(t)
	var listed []string
	for _, row := range regexp.MustCompile(
		"(?m)^\\| (`[a-z-]+`(?:, `[a-z-]+`)*) \\|.*\\| `(\\w+)` \\|$").
		FindAllStringSubmatch(string(page), -1) {
		listed = append(listed, strings.Split(strings.Trim(row[1], "`"), "`, `")...)
		if !slices.Contains(tests, row[2]) {
			t.Errorf("%s: there is no test %s", row[1], row[2])
		}
	}
	slices.Sort(listed)
	if diff := cmp.Diff(hostileCases(), listed); diff != "" {
		t.Errorf("docs/reference/security.md lists other cases than the tests have (-tests +page):\n%s",
			diff)
	}
}

// testNames returns the names of all functions in the tests of this directory.
func testNames(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if rest, ok := strings.CutPrefix(line, "func "); ok {
				name, _, _ := strings.Cut(rest, "(")
				names = append(names, name)
			}
		}
	}
	return names
}
