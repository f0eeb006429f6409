package metrics_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/train/metrics"
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

// heap is the size of what is in use.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestMemory: a file of any length is resumed and gone through with one of its lines in memory.
func TestMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
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
	for name, do := range map[string]func() error{
		"Resume": func() error {
			w, err := metrics.Resume[metrics.Record](file, 1<<30)
			if err != nil {
				return err
			}
			return w.Close()
		},
		"Each": func() error {
			for _, err := range metrics.Each[metrics.Record](file) {
				if err != nil {
					return err
				}
			}
			return nil
		},
	} {
		before := heap()
		most = 0
		if err := do(); err != nil {
			t.Fatal(err)
		}
		if most == 0 || most > before+4<<20 {
			t.Errorf("%s needs %d bytes", name, int64(most)-int64(before))
		}
	}
}

// brokenFS is a file system whose files cannot be read from some byte on.
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

// TestResumeThatCannotRead: what cannot be read is no damage, and nothing is cut off.
func TestResumeThatCannotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	const text = "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := metrics.Resume[metrics.Record](vfs.On(brokenFS{vfs.OS, 15}, path), 3); err == nil {
		t.Error("what could not be read is resumed")
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != text {
		t.Errorf("%q is left, %v", after, err)
	}
}
