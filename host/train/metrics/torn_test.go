package metrics_test

import (
	"errors"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/internal/vfs"
)

// shortFS is a file system of which every write fails after half of it, while full.
type shortFS struct {
	vfs.FS
	full bool
}

var errFull = errors.New("no space left")

func (s *shortFS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := s.FS.OpenFile(name, flag, perm)
	return shortFile{f, s}, err
}

type shortFile struct {
	vfs.File
	fs *shortFS
}

func (f shortFile) Write(p []byte) (int, error) {
	if !f.fs.full {
		return f.File.Write(p)
	}
	n, err := f.File.Write(p[:len(p)/2])
	return n, errors.Join(err, errFull)
}

// TestWriteAfterAFailedOne: a record that was written in part leaves nothing behind when
// the next one is written.
func TestWriteAfterAFailedOne(t *testing.T) {
	short := &shortFS{FS: vfs.OS}
	path := vfs.On(short, filepath.Join(t.TempDir(), "metrics.jsonl"))
	w, err := metrics.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	write := func(step int) error { return w.Write(metrics.Record{Step: step, Loss: 1.5}) }
	if err := write(1); err != nil {
		t.Fatal(err)
	}
	short.full = true
	for range 2 {
		if err := write(2); !errors.Is(err, errFull) {
			t.Errorf("a record on a full disk: %v", err)
		}
	}
	short.full = false
	for step := 2; step <= 3; step++ {
		if err := write(step); err != nil {
			t.Error(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	records, err := metrics.Read[metrics.Record](path)
	if err != nil || len(records) != 3 || records[1].Step != 2 || records[2].Step != 3 {
		t.Errorf("read %+v, %v", records, err)
	}
}
