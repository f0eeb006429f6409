package jsonlines_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/jsonlines"
	"github.com/cage-qat/cage/internal/vfs"
)

// meterFS is a file system that measures the heap while a file is read.
type meterFS struct {
	vfs.FS
	most *uint64 // bytes
}

func (m meterFS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := m.FS.OpenFile(name, flag, perm)
	return &meterFile{File: f, most: m.most}, err
}

type meterFile struct {
	vfs.File
	most   *uint64
	unseen int // bytes that were read since the heap was measured
}

func (f *meterFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	if f.unseen += n; f.unseen > 1<<20 {
		f.unseen = 0
		*f.most = max(*f.most, heap())
	}
	return n, err
}

// heap returns the size of all reachable objects, in bytes.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestMemory checks that reading a file of 12 MiB needs at most 4 MiB more heap: only one line is
// kept in memory.
func TestMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.jsonl")
	var text strings.Builder
	for step := 1; text.Len() < 12<<20; step++ {
		fmt.Fprintf(&text, `{"step":%d,"loss":1,"weights":{"w0":{"flip_rate":0.5}`, step)
		for i := 1; i < 300; i++ {
			fmt.Fprintf(&text, `,"block.%d.w":{"flip_rate":0.5,"grad_norm":1,"lr":0.001}`, i)
		}
		text.WriteString("}}\n")
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	text.Reset()
	var most uint64
	file := vfs.On(meterFS{vfs.OS, &most}, path)
	before := heap()
	lines := 0
	for _, err := range jsonlines.Read[record](file) {
		if err != nil {
			t.Fatal(err)
		}
		lines++
	}
	if lines < 500 || most == 0 || most > before+4<<20 {
		t.Errorf("%d lines need %d bytes", lines, int64(most)-int64(before))
	}
}

// brokenFS is a file system in which reading fails after the first at bytes of a file.
type brokenFS struct {
	vfs.FS
	at int
}

func (b brokenFS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := b.FS.OpenFile(name, flag, perm)
	return &brokenFile{f, b.at}, err
}

type brokenFile struct {
	vfs.File
	left int
}

func (f *brokenFile) Read(p []byte) (int, error) {
	if f.left == 0 {
		return 0, fs.ErrInvalid
	}
	n, err := f.File.Read(p[:min(len(p), f.left)])
	f.left -= n
	return n, err
}

// TestReadThatFails checks that a read error is not reported as a damaged line.
func TestReadThatFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.jsonl")
	put(t, path, []byte("{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n"))
	var last error
	for _, err := range jsonlines.Read[record](vfs.On(brokenFS{vfs.OS, 15}, path)) {
		last = err
	}
	if _, damaged := errors.AsType[*jsonlines.Error](last); damaged ||
		!errors.Is(last, fs.ErrInvalid) {
		t.Errorf("error %v", last)
	}
}

// TestDamage checks that errors name the line, and that the following lines are read.
func TestDamage(t *testing.T) {
	path := vfs.At(filepath.Join(t.TempDir(), "log.jsonl"))
	const good = "{\"step\":1}\n"
	long := `{"step":1,"text":"` + strings.Repeat("x", 64<<20) + "\"}\n"
	for _, test := range []struct {
		text string
		want []int
		say  string
	}{
		{"", nil, ""},
		{good + good, []int{1, 1}, ""},
		{good + `{"step":2`, []int{1, -2}, "log.jsonl: line 2: the line is incomplete"},
		{good + "oops\n" + good, []int{1, -1, 1}, "log.jsonl: line 2: not valid JSON"},
		{"null\n" + good, []int{-1, 1}, "line 1: is null, want a JSON object"},
		{good + "\n" + good, []int{1, -1, 1}, "line 2: not valid JSON: it is empty"},
		{`{"step":"x"}` + "\n", []int{-1}, "line 1: step: found a string, want an integer"},
		{"{}{}\n", []int{-1}, "line 1"},
		{good + "\x00\x00", []int{1, -2}, "line 2"},
		{" {\"step\":3,\"unknown\":[]} \r\n", []int{3}, ""},
		{good + long + good, []int{1, -1, 1}, "line 2: is longer than 67108864 bytes"},
	} {
		put(t, path.Name, []byte(test.text))
		if got := steps(t, path); !slices.Equal(got, test.want) {
			t.Errorf("%.60q: %v, want %v", test.text, got, test.want)
		}
		said := ""
		for _, err := range jsonlines.Read[record](path) {
			if err != nil {
				said += err.Error()
			}
		}
		if !strings.Contains(said, test.say) || test.say == "" && said != "" {
			t.Errorf("%.60q: the error is %q, want %q", test.text, said, test.say)
		}
	}
}

// FuzzRead checks that Read reports the correct end of every line, and that Tail returns the same
// lines.
func FuzzRead(f *testing.F) {
	f.Add([]byte("{\"step\":1}\n{}\n"))
	f.Add([]byte("{}\n{"))
	f.Add([]byte("\n\n"))
	path := vfs.At(filepath.Join(f.TempDir(), "log.jsonl"))
	f.Fuzz(func(t *testing.T, text []byte) {
		put(t, path.Name, text)
		end, torn := int64(0), false
		for e, err := range jsonlines.Read[record](path) {
			if torn = errors.Is(err, jsonlines.ErrTorn); torn {
				continue
			}
			if e.End <= end || bytes.IndexByte(text[end:e.End], '\n') != int(e.End-end)-1 {
				t.Errorf("a line of %q ends at %d, after one at %d", text, e.End, end)
			}
			end = e.End
		}
		if torn != (int(end) < len(text)) || bytes.IndexByte(text[end:], '\n') >= 0 {
			t.Errorf("lines of %q end at %d, torn %v", text, end, torn)
		}
		lines, whole, err := jsonlines.Tail(path, int64(len(text)))
		if got := string(bytes.Join(append(lines, nil), []byte{'\n'})); err != nil || !whole ||
			got != string(text[:end]) {
			t.Errorf("from the end %q, %v, want %q", got, err, text[:end])
		}
	})
}

// TestTail checks that Tail returns only complete lines, and an error for a line longer than the
// limit.
func TestTail(t *testing.T) {
	path := vfs.At(filepath.Join(t.TempDir(), "log.jsonl"))
	put(t, path.Name, []byte("first\nsecond\nthird\nnot whole"))
	for size, want := range map[int64][]string{
		100: {"first", "second", "third"}, 27: {"second", "third"}, 22: {"third"}, 21: {"third"}, 10: nil,
		3: nil,
	} {
		lines, whole, err := jsonlines.Tail(path, size)
		var got []string
		for _, line := range lines {
			got = append(got, string(line))
		}
		if err != nil || !slices.Equal(got, want) || whole != (size == 100) {
			t.Errorf("%d bytes: %q, whole %v, %v, want %q", size, got, whole, err, want)
		}
	}
	put(t, path.Name, nil)
	if err := os.Truncate(path.Name, 256<<20); err != nil {
		t.Fatal(err)
	}
	if _, _, err := jsonlines.Tail(path, 1<<40); err == nil ||
		!strings.Contains(err.Error(), "longer than 67108864 bytes") {
		t.Errorf("no line end: %v", err)
	}
	put(t, path.Name, nil)
	if lines, whole, err := jsonlines.Tail(path, 1); len(lines) > 0 || !whole || err != nil {
		t.Errorf("an empty file: %q, %v, %v", lines, whole, err)
	}
}
