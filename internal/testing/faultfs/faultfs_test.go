package faultfs_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/testing/faultfs"
	"github.com/cage-qat/cage/internal/vfs"
)

// everything performs operations of all kinds except Open, even if some fail, and returns the
// errors.
func everything(files vfs.FS, dir string) []error {
	var errs []error
	path := vfs.On(files, dir).Join("sub")
	errs = append(errs, path.FS.Mkdir(path.Name, 0o755))
	lock, err := path.Join("lock").Lock()
	if errs = append(errs, err); err == nil {
		defer lock.Unlock()
	}
	f, err := path.Join("file").OpenFile(os.O_RDWR|os.O_CREATE, 0o644)
	if errs = append(errs, err); err == nil {
		_, err := f.Write([]byte("whole"))
		errs = append(errs, err, f.Sync(), f.Truncate(3))
		_, err = f.ReadAt(make([]byte, 3), 0)
		_, statErr := f.Stat()
		errs = append(errs, err, statErr, f.Close())
	}
	_, err = path.Join("file").Stat()
	_, dirErr := path.ReadDir()
	errs = append(errs, err, path.Join("file").Rename(path.Join("other")), dirErr, path.SyncDir(),
		path.Join("other").Remove())
	return errs
}

func failed(errs []error) (n int, all bool) {
	all = true
	for _, err := range errs {
		if err != nil {
			var injected *faultfs.Error
			all = all && (errors.As(err, &injected) || errors.Is(err, os.ErrNotExist))
			n++
		}
	}
	return n, all
}

func TestEveryOperationFails(t *testing.T) {
	healthy := faultfs.New(vfs.OS, -1, true)
	if n, _ := failed(everything(healthy, t.TempDir())); n > 0 || len(healthy.Fired()) > 0 {
		t.Fatalf("%d operations fail unasked", n)
	}
	ops := healthy.Ops()
	if len(ops) < 14 {
		t.Fatalf("only %v were counted", ops)
	}
	for i := range ops {
		for _, forever := range []bool{false, true} {
			files := faultfs.New(vfs.OS, i, forever)
			errs := everything(files, t.TempDir())
			if n, all := failed(errs); n == 0 || !all {
				t.Errorf("%s: %v", ops[i], errs)
			}
			if fired := files.Fired(); fired[0].Kind != ops[i].Kind || !forever && len(fired) != 1 ||
				forever && len(fired) != len(files.Ops())-i {
				t.Errorf("%s: fired %v", ops[i], fired)
			}
		}
	}
}

func TestTornWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	f, err := faultfs.New(vfs.OS, 1, false).OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := f.Write([]byte("12345678")); n != 4 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%d bytes written, %v", n, err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(path); string(text) != "1234" {
		t.Errorf("the file holds %q", text)
	}
}

func Example() {
	dir, err := os.MkdirTemp("", "faultfs")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	for i := 0; ; i++ {
		files := faultfs.New(vfs.OS, i, false)
		err := atomicfile.WriteBytes(vfs.On(files, dir).Join("kept"), []byte("text"))
		if len(files.Fired()) == 0 {
			break
		}
		fmt.Println(files.Fired()[0].Kind, errors.Is(err, syscall.EIO) || errors.Is(err, syscall.ENOSPC))
	}
	// Output:
	// create true
	// write true
	// sync true
	// close true
	// rename true
	// syncdir true
}
