package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestWrapLast(t *testing.T) {
	rows := [][]string{{"name", "what it is"}, {"q", "one two three four five six"}, {"long-name", ""}}
	want := [][]string{{"name", "what it is"}, {"q", "one two three four"}, {"", "five six"}, {"long-name", ""}}
	if diff := cmp.Diff(want, wrapLast(rows, 31)); diff != "" {
		t.Errorf("31 columns (-want +got):\n%s", diff)
	}
	for _, width := range []int{0, 30, 200} {
		if diff := cmp.Diff(rows, wrapLast(rows, width)); diff != "" {
			t.Errorf("%d columns (-want +got):\n%s", width, diff)
		}
	}
}

func TestBreakLines(t *testing.T) {
	for text, want := range map[string][]string{
		"":             {""},
		"a bc  def":    {"a bc", "def"},
		"λλ λλ λλ":     {"λλ λλ", "λλ"},
		"overlong a b": {"overlong", "a b"},
	} {
		if diff := cmp.Diff(want, breakLines(text, 5)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

func TestThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		due := throttle(time.Second)
		for i, want := range []bool{false, false, true, false, true} { // at 0, 0.5, 1, 1.5 … seconds
			if got := due(); got != want {
				t.Errorf("look %d: %v, want %v", i, got, want)
			}
			time.Sleep(time.Second / 2)
		}
	})
}
