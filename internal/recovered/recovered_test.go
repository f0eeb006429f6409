package recovered_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/recovered"
)

// execute calls f as an executor would.
func execute(f func() error) (err error) {
	defer recovered.Catch("tile", "update/w", &err)
	return f()
}

func TestCatch(t *testing.T) {
	want := errors.New("refused")
	if err := execute(func() error { return want }); err != want {
		t.Errorf("got %v, want the error of the function", err)
	}
	if err := execute(func() error { return nil }); err != nil {
		t.Errorf("got %v, want nil", err)
	}
	var list []int
	err := execute(func() error { list[3] = 1; return nil })
	var caught *recovered.PanicError
	if !errors.As(err, &caught) || caught.Executor != "tile" || caught.Program != "update/w" {
		t.Fatalf("got %#v", err)
	}
	for _, part := range []string{`"tile"`, `"update/w"`, "index out of range"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the message %q lacks %q", err, part)
		}
	}
	var cause runtime.Error
	if !errors.As(err, &cause) {
		t.Error("the cause is lost")
	}
}

func ExampleCatch() {
	run := func() (err error) {
		defer recovered.Catch("tile", "update/w", &err)
		panic("a state that cannot be")
	}
	fmt.Println(run())
	// Output: executor "tile" failed on program "update/w"; this is a bug in this build, not a problem of the run's settings: a state that cannot be
}
