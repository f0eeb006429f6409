package main

import (
	"testing"

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
