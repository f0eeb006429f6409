package atomicfile_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
	"github.com/cage-qat/cage/internal/vfs/faultfs"
)

func TestCheckOurs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	never := func(io.Reader) bool { return false }
	if err := atomicfile.CheckOurs(vfs.At(path), never); err != nil {
		t.Errorf("where nothing is: %v", err)
	}
	if err := os.WriteFile(path, []byte("CAGE and more"), 0o644); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		ours func(io.Reader) bool
		want bool
	}{
		"never":            {never, false},
		"the same":         {atomicfile.Is([]byte("CAGE and more")), true},
		"less":             {atomicfile.Is([]byte("CAGE and mor")), false},
		"more":             {atomicfile.Is([]byte("CAGE and more of it")), false},
		"nothing":          {atomicfile.Is(nil), false},
		"the beginning":    {atomicfile.Begins("CAGE"), true},
		"another":          {atomicfile.Begins("CAFE"), false},
		"a longer mark":    {atomicfile.Begins("CAGE and more of it"), false},
		"any beginning":    {atomicfile.Begins(""), true},
		"the whole as one": {atomicfile.Begins("CAGE and more"), true},
	} {
		err := atomicfile.CheckOurs(vfs.At(path), c.ours)
		if (err == nil) != c.want || err != nil && !strings.Contains(err.Error(), path+" is in the way: cage did not write it") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestCheckOursFaults: a file that cannot be read is not called somebody else's.
func TestCheckOursFaults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("CAGE"), 0o644); err != nil {
		t.Fatal(err)
	}
	for files := range faultfs.Each(t, 1, 3) {
		err := atomicfile.CheckOurs(vfs.On(files, path), atomicfile.Begins("CAGE"))
		files.Reported(t, err)
		if fault := new(faultfs.Error); err != nil && (!errors.As(err, &fault) || strings.Contains(err.Error(), "in the way")) {
			t.Error(err)
		}
	}
}
