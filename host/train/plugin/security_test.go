package plugin

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// behaved are the behaviours that are not hostile: the tests need them.
var behaved = []string{"quantizer", "optimizer", "both", "host", "limited-host", "plain-grpc", "trainable", "refresher", "tells-socket", "answers"}

// hostileCases are the names of all that plugins do in these tests, as they stand in the
// first column of docs/security.md: behaviours, and what is done in a call.
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
	for _, do := range []string{"escape", "escape-panic", "eat", "stop-parent", "kill-parent"} {
		names = append(names, "call-"+do)
	}
	slices.Sort(names)
	return names
}

// The page on security lists every hostile case, and tests that are there.
func TestSecurityPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := testNames(t)
	var listed []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|.*\\| `(\\w+)` \\|$").FindAllStringSubmatch(string(page), -1) {
		listed = append(listed, row[1])
		if !slices.Contains(tests, row[2]) {
			t.Errorf("%s: there is no test %s", row[1], row[2])
		}
	}
	slices.Sort(listed)
	if diff := cmp.Diff(hostileCases(), listed); diff != "" {
		t.Errorf("docs/security.md lists other cases than the tests have (-tests +page):\n%s", diff)
	}
}

// testNames are the tests of this directory.
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
