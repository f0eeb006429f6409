package export_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/cage-qat/cage/host/deploy/export"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/internal/testing/faultfs"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/vfs"
)

// TestFaults checks that if any file operation fails, the directory is complete or absent and the
// error is reported, and that the next export succeeds.
func TestFaults(t *testing.T) {
	m := small(t, architecture.KindLlama, integers(32, halfSeventh))
	for _, format := range export.Formats() {
		for files := range faultfs.Each(t, testlevel.Choose(23, 1), 1) {
			out := filepath.Join(t.TempDir(), "out")
			_, err := export.Write(t.Context(), format, vfs.On(files, out), m, export.Options{})
			what := files.Reported(t, err)
			if _, missing := os.Stat(out); missing == nil {
				if _, err := os.Stat(filepath.Join(out, "export.json")); err != nil {
					t.Errorf("%s: %s: there is half a directory", format, what)
				}
			}
			if _, err := export.Write(t.Context(), format, vfs.At(out), m, export.Options{}); err != nil &&
				!errors.Is(err, fs.ErrExist) {
				t.Errorf("%s: %s: the next export: %v", format, what, err)
			}
		}
	}
}

// TestCancelled checks that a cancelled export leaves no files.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, format := range export.Formats() {
		dir := t.TempDir()
		_, err := export.Write(ctx, format, vfs.At(filepath.Join(dir, "out")),
			small(t, architecture.KindLlama, nil), export.Options{})
		if format != "compressed-tensors" && format != "mlx" && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", format, err)
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("%s left %v", format, left)
		}
	}
}
