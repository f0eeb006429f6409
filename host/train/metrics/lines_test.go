package metrics_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/internal/vfs"
)

func TestResume(t *testing.T) {
	const torn = `{"step":6,"loss":1.2`
	tests := map[string]struct {
		step int
		tail string
		want []int
	}{
		"in the middle":     {3, "", []int{1, 2, 3}},
		"between records":   {4, torn, []int{1, 2, 3}},
		"at the end":        {5, torn, []int{1, 2, 3, 5}},
		"past the end":      {9, torn, []int{1, 2, 3, 5}},
		"before everything": {0, torn, nil},
		"zeros at the end":  {5, "\x00\x00\x00", []int{1, 2, 3, 5}},
		"broken after":      {3, "not JSON\n", []int{1, 2, 3}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "metrics.jsonl")
			w := resume[metrics.Record](t, path, 0)
			writeAll(t, w, full(1), full(2), full(3), full(5))
			closeWriter(t, w)
			before := get(t, path)
			put(t, path, append(before, test.tail...))
			w = resume[metrics.Record](t, path, test.step)
			got, err := metrics.Read[metrics.Record](vfs.At(path))
			if err != nil || !slices.Equal(steps(got), test.want) {
				t.Errorf("steps %v are kept, %v; want %v", steps(got), err, test.want)
			}
			after, err := os.ReadFile(path)
			if err != nil || !bytes.HasPrefix(before, after) {
				t.Errorf("what is kept has changed, %v", err)
			}
			writeAll(t, w, full(test.step+1))
			closeWriter(t, w)
			got, err = metrics.Read[metrics.Record](vfs.At(path))
			if want := append(slices.Clone(test.want), test.step+1); err != nil ||
				!slices.Equal(steps(got), want) {
				t.Errorf("going on gives steps %v, %v; want %v", steps(got), err, want)
			}
		})
	}
}

// TestResumeBehindDamage checks that Resume cuts off lines that are not records, and reports them,
// but fails if they are among the records to keep.
func TestResumeBehindDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	record := func(step int) string { return fmt.Sprintf("{\"step\":%d,\"loss\":1}\n", step) }
	const garbage = "\x00\xfe{]\n"
	for _, test := range []struct {
		text string
		step int
		kept string // "" for an error
	}{
		{record(1) + record(2) + garbage, 2, record(1) + record(2)},
		{record(1) + record(2) + "{\"step\":3,\"lo\n" + record(4) + garbage, 2, record(1) + record(2)},
		{record(1) + garbage + garbage + "{\"st", 2, record(1)}, // not every step is recorded
		{record(1) + garbage + record(2), 2, ""},
		{garbage, 1, ""},
		{garbage + record(1), 1, ""},
	} {
		put(t, path, []byte(test.text))
		w, err := metrics.Resume[metrics.Record](vfs.At(path), test.step)
		if test.kept == "" {
			if err == nil || !strings.Contains(err.Error(), "line ") {
				t.Errorf("%q: %v, want an error that names the line", test.text, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", test.text, err)
			continue
		}
		if w.Damage() == nil {
			t.Errorf("%q: the damage is not told of", test.text)
		}
		w.Close()
		if got, _ := os.ReadFile(path); string(got) != test.kept {
			t.Errorf("%q: %q is left, want %q", test.text, got, test.kept)
		}
	}
}

func TestResumeWithoutFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	w := resume[metrics.Record](t, path, 5)
	writeAll(t, w, full(6))
	if err := errors.Join(w.Sync(), w.Close()); err != nil {
		t.Fatal(err)
	}
}
