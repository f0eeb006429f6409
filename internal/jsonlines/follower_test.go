package jsonlines_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/internal/jsonlines"
	"github.com/cage-qat/cage/internal/vfs"
)

// followed returns a follower and the list of lines that it passes on, in which "!" is a restart.
func followed(path string) (*jsonlines.Follower, *[]string) {
	var got []string
	return &jsonlines.Follower{
		Path: vfs.At(path), Restart: func() { got = append(got, "!") },
		Line: func(text []byte) { got = append(got, string(text)) },
	}, &got
}

// TestFollow checks that each line is passed on once while a file grows, and again after the file
// is truncated or replaced.
func TestFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	f, got := followed(path)
	for _, step := range []struct{ what, content, want string }{
		{"no file", "", ""},
		{"half a line", "one", ""},
		{"the rest of it, and half of the next", "one\ntw", "one"},
		{"two more", "one\ntwo\nthree\n", "two three"},
		{"nothing new", "one\ntwo\nthree\n", ""},
		{"cut and written again, longer than before", "one\ntwo\nthree again\nfour\n",
			"! one two three again four"},
		{"cut", "one\n", "! one"},
		{"empty", "", "!"},
		{"an empty line", "\n\nlast\n", "  last"},
	} {
		if step.what != "no file" {
			put(t, path, []byte(step.content))
		}
		*got = nil
		if more, err := f.Next(1 << 20); more || err != nil {
			t.Fatalf("%s: %v, %v", step.what, more, err)
		}
		if diff := cmp.Diff(step.want, strings.Join(*got, " ")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.what, diff)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	*got = nil
	if _, err := f.Next(1); err != nil || strings.Join(*got, " ") != "!" {
		t.Errorf("the file is gone: %q, %v", *got, err)
	}
}

// TestFollowWithoutChange checks that a call for a file that has not changed needs no buffer.
func TestFollowWithoutChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	put(t, path, []byte("one\n"))
	f, _ := followed(path)
	if _, err := f.Next(1 << 20); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 20 {
		if more, err := f.Next(1 << 20); more || err != nil {
			t.Fatal(more, err)
		}
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
		t.Errorf("20 calls have allocated %d bytes", used)
	}
}

// TestFollowLimit checks that a line longer than the limit is an error.
func TestFollowLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	put(t, path, []byte("one\n"))
	if err := os.Truncate(path, 256<<20); err != nil {
		t.Fatal(err)
	}
	f, got := followed(path)
	if more, err := f.Next(1); !more || err != nil {
		t.Fatalf("the first line: %v, %v", more, err)
	}
	if _, err := f.Next(1); err == nil ||
		!strings.Contains(err.Error(), "the line at byte 4 is longer than 67108864 bytes") {
		t.Errorf("the second: %v", err)
	}
	if diff := cmp.Diff([]string{"one"}, *got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// TestFollowInParts checks that a budget divides a file of long lines among several calls, and that
// no line is lost.
func TestFollowInParts(t *testing.T) {
	var text bytes.Buffer
	for i := range 5 {
		fmt.Fprintf(&text, "%d %s\n", i, strings.Repeat("x", 3<<20))
	}
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	put(t, path, text.Bytes())
	f, got := followed(path)
	calls := 1
	for ; ; calls++ {
		more, err := f.Next(4 << 20)
		if err != nil {
			t.Fatal(err)
		}
		if !more {
			break
		}
	}
	if len(*got) != 5 || calls < 3 {
		t.Errorf("%d lines in %d calls", len(*got), calls)
	}
}

func put(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
