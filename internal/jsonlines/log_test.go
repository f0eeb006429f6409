package jsonlines_test

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/internal/jsonlines"
	"github.com/cage-qat/cage/internal/testing/crashfs"
	"github.com/cage-qat/cage/internal/testing/faultfs"
	"github.com/cage-qat/cage/internal/vfs"
)

// shortFS is a file system in which, while full is set, every write fails after half of its data.
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

type record struct {
	Step int    `json:"step"`
	Text string `json:"text,omitempty"`
}

// steps returns the steps of the records in a file: −1 for a damaged line, −2 for an incomplete
// one.
func steps(t *testing.T, path vfs.Path) (list []int) {
	t.Helper()
	for e, err := range jsonlines.Read[record](path) {
		switch _, damaged := errors.AsType[*jsonlines.Error](err); {
		case errors.Is(err, jsonlines.ErrTorn):
			list = append(list, -2)
		case damaged:
			list = append(list, -1)
		case err != nil:
			t.Fatal(err)
		default:
			list = append(list, e.Value.Step)
		}
	}
	return list
}

// TestAppendAfterAFailedOne checks that partly written lines are gone when the next line is
// written.
func TestAppendAfterAFailedOne(t *testing.T) {
	short := &shortFS{FS: vfs.OS}
	path := vfs.On(short, filepath.Join(t.TempDir(), "log.jsonl"))
	log, err := jsonlines.Continue[record](path, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Append(record{Step: 1}); err != nil {
		t.Fatal(err)
	}
	short.full = true
	for range 2 {
		if err := log.Append(record{Step: 2}, record{Step: 3}); !errors.Is(err, errFull) {
			t.Errorf("lines on a full disk: %v", err)
		}
	}
	if got := steps(t, path); len(got) < 2 {
		t.Errorf("the test wrote nothing of the lines: %v", got)
	}
	short.full = false
	if err := errors.Join(log.Append(record{Step: 4}), log.Append(record{Step: 5}),
		log.Close()); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]int{1, 4, 5}, steps(t, path)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestAppendedOutlastsPowerLoss checks that synced lines and the name of their file survive a power
// failure.
func TestAppendedOutlastsPowerLoss(t *testing.T) {
	dir := t.TempDir()
	disk, err := crashfs.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	log, err := jsonlines.Continue[record](vfs.On(disk, filepath.Join(dir, "log.jsonl")), 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(log.Append(record{Step: 1}), log.Sync()); err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(20) {
		left := t.TempDir()
		if err := disk.Lose(disk.Moments(), seed, left); err != nil {
			t.Fatal(err)
		}
		if got := steps(t, vfs.At(filepath.Join(left, "log.jsonl"))); len(got) != 1 || got[0] != 1 {
			t.Errorf("loss %d: %v", seed, got)
		}
	}
	log.Close()
}

// writeAndGoOn truncates a file after its last complete line, and appends a line.
func writeAndGoOn(path vfs.Path) error {
	size := int64(0)
	for e, err := range jsonlines.Read[record](path) {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, jsonlines.ErrTorn) {
			break
		}
		if err != nil {
			return err
		}
		size = e.End
	}
	log, err := jsonlines.Continue[record](path, size)
	if err != nil {
		return err
	}
	return errors.Join(log.Append(record{Step: int(size), Text: "text"}), log.Close())
}

// TestFaults makes each file operation fail, and checks that the error is reported and that lines
// which were complete before are kept.
func TestFaults(t *testing.T) {
	for files := range faultfs.Each(t, 1, 10) {
		name := filepath.Join(t.TempDir(), "log.jsonl")
		put(t, name, []byte("{\"step\":0}\n{\"step\":7"))
		what := files.Reported(t, writeAndGoOn(vfs.On(files, name)))
		if err := writeAndGoOn(vfs.At(name)); err != nil {
			t.Errorf("%s: it cannot go on: %v", what, err)
		}
		if got := steps(t, vfs.At(name)); len(got) < 2 || got[0] != 0 || slices.Min(got) < 0 {
			t.Errorf("%s: %v", what, got)
		}
	}
}
