package repocheck

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTimeouts checks that of a package whose tests have taken too long, make test prints one line,
// and leaves what other packages print and the exit status as they are.
func TestTimeouts(t *testing.T) {
	const said = `ok  	a	0.1s
--- FAIL: TestP (0.00s)
panic: real

goroutine 4 [running]:
	p/p_test.go:3 +0x25
FAIL	p	0.006s
panic: test timed out after 18m0s
	running tests:
		TestOne (17m58s)
		TestOne/sub (3m2s)

goroutine 1 [running]:
testing.(*M).startAlarm.func1()
	testing/testing.go:2961 +0x34a
FAIL	b	1080.007s
panic: test timed out after 18m0s

goroutine 2 [running]:
FAIL	c	1080.007s
ok  	d	0.1s
FAIL
`
	const want = `ok  	a	0.1s
--- FAIL: TestP (0.00s)
panic: real

goroutine 4 [running]:
	p/p_test.go:3 +0x25
FAIL	p	0.006s
test timed out after 18m0s, running TestOne (17m58s), TestOne/sub (3m2s) (bin/goroutines.txt has all goroutines)
FAIL	b	1080.007s
test timed out after 18m0s, running no test (bin/goroutines.txt has all goroutines)
FAIL	c	1080.007s
ok  	d	0.1s
FAIL
`
	script, err := filepath.Abs("../../scripts/timeouts.sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(script, "sh", "-c", "cat; exit 3")
	cmd.Dir, cmd.Stdin = t.TempDir(), strings.NewReader(said)
	got, err := cmd.Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); !ok || failed.ExitCode() != 3 {
		t.Errorf("%v, want the exit status 3", err)
	}
	if string(got) != want {
		t.Errorf("got\n%s", got)
	}
	rest, err := os.ReadFile(filepath.Join(cmd.Dir, "bin/goroutines.txt"))
	if err != nil || !strings.Contains(string(rest), "startAlarm") ||
		!strings.Contains(string(rest), "goroutine 2") {
		t.Errorf("the goroutines are %q (%v)", rest, err)
	}
}
