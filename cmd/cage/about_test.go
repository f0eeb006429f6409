package main

import (
	"strings"
	"testing"
)

// Every lack is one line that says how to mend it.
func TestLacks(t *testing.T) {
	if got := lackMessages(false, false); got != nil {
		t.Errorf("a whole executable lacks %q", got)
	}
	list := lackMessages(true, true)
	if len(list) != 2 {
		t.Fatalf("got %q", list)
	}
	for i, want := range []string{"GOEXPERIMENT=simd", "plugins"} {
		if !strings.Contains(list[i], want) || !strings.Contains(list[i], "'make build'") || !strings.Contains(list[i], releases) || strings.Contains(list[i], "\n") {
			t.Errorf("%q does not say how to get %s", list[i], want)
		}
	}
}
