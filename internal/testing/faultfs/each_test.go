package faultfs_test

import (
	"errors"
	"testing"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/testing/faultfs"
	"github.com/cage-qat/cage/internal/vfs"
)

// heard is a test that counts its errors.
type heard struct {
	testing.TB
	errors int
}

func (h *heard) Errorf(string, ...any) { h.errors++ }

// TestEach checks that each operation fails, alone and with all later ones, until nothing fails,
// and that too few operations fail the test.
func TestEach(t *testing.T) {
	for least, wrong := range map[int]int{1: 0, 1000: 2} {
		h := &heard{TB: t}
		fired := 0
		undisturbed := 0
		for files := range faultfs.Each(h, 1, least) {
			err := atomicfile.WriteBytes(vfs.On(files, t.TempDir()).Join("kept"), []byte("text"))
			files.Reported(t, err)
			if n := len(files.Fired()); n > 0 {
				fired++
			} else {
				undisturbed++
			}
		}
		if h.errors != wrong || fired < 10 || undisturbed != 2 {
			t.Errorf("at least %d: %d errors, want %d; %d tries with a fault, %d without", least, h.errors,
				wrong, fired, undisturbed)
		}
	}
}

// TestReported checks that an unreported fault fails the test, and so does an error without a
// fault.
func TestReported(t *testing.T) {
	files := faultfs.New(vfs.OS, 0, false)
	if what := files.Reported(t, nil); what != "nothing failed" {
		t.Errorf("before any operation: %s", what)
	}
	h := &heard{TB: t}
	files.Reported(h, errors.New("no fault"))
	_, fault := vfs.On(files, t.TempDir()).ReadDir()
	files.Reported(t, fault)
	files.Reported(h, nil)
	files.Reported(h, errors.New("another"))
	if h.errors != 3 {
		t.Errorf("%d errors, want 3", h.errors)
	}
}
