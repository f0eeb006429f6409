package faultfs

import (
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/vfs/vfstest"
)

// Each makes operation 0, every, 2·every, … of [vfstest.NoSync] fail in turn, first only
// that operation, then also all that follow. Each of these two passes ends with a try in
// which nothing failed; the test fails if that try was for an operation before least.
func Each(t testing.TB, every, least int) iter.Seq[*FS] {
	return func(yield func(*FS) bool) {
		for _, forever := range []bool{false, true} {
			for i := 0; ; i += every {
				files := New(vfstest.NoSync, i, forever)
				if !yield(files) {
					return
				}
				if len(files.Fired()) > 0 {
					continue
				}
				if i < least {
					t.Errorf("only %d operations were made to fail", i)
				}
				t.Logf("forever %v: %d operations failed in turn", forever, (i+every-1)/every)
				break
			}
		}
	}
}

// What says which operation was made to fail.
func (f *FS) What() string {
	fired := f.Fired()
	if len(fired) == 0 {
		return "nothing failed"
	}
	return fmt.Sprintf("%s failed, forever %v", fired[0], f.forever)
}

// Reported fails the test unless err reports the injected fault, or is nil if nothing was
// made to fail. It returns what failed.
func (f *FS) Reported(t testing.TB, err error) (what string) {
	t.Helper()
	what = f.What()
	switch {
	case len(f.Fired()) == 0:
		if err != nil {
			t.Errorf("%s, but there is the error %v", what, err)
		}
	case !strings.Contains(fmt.Sprint(err), "injected fault"):
		t.Errorf("%s: nobody reports it: %v", what, err)
	}
	return what
}
