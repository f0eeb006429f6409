package regular_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cage-qat/cage/internal/regular"
)

func TestOnlyRegularFiles(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(
		os.WriteFile(at("file"), []byte("text"), 0o644),
		os.Symlink(at("file"), at("link")),
		syscall.Mkfifo(at("pipe"), 0o644),
		os.Symlink(at("pipe"), at("piped")),
	); err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", at("s"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	for name, want := range map[string]string{
		at("file"): "", at("link"): "",
		at("pipe"): "is a named pipe", at("piped"): "is a named pipe", at("s"): "is a socket",
		dir: "is a directory", "/dev/zero": "is a device", at("none"): "no such file",
	} {
		content, err := regular.ReadFile(name)
		switch {
		case want == "" && (err != nil || string(content) != "text"):
			t.Errorf("%s: %q, %v", name, content, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name)):
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	// For writing, too.
	for _, flag := range []int{os.O_WRONLY, os.O_RDWR | os.O_CREATE, os.O_WRONLY | os.O_APPEND} {
		if _, err := regular.OpenFile(at("pipe"), flag, 0o644); err == nil || !strings.Contains(err.Error(), "is a named pipe") {
			t.Errorf("flag %d: %v", flag, err)
		}
	}
	f, err := regular.OpenFile(at("new"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("new"); err != nil {
		t.Error(err)
	}
}

func TestKindsOfErrors(t *testing.T) {
	_, err := regular.Open(t.TempDir())
	if _, ok := errors.AsType[*regular.Error](err); !ok || !errors.Is(err, syscall.EISDIR) {
		t.Errorf("a directory: %v", err)
	}
	if _, err := regular.Open("none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func Example() {
	_, err := regular.Open("/dev/null")
	fmt.Println(err)
	// Output: open /dev/null: is a device: want a regular file
}
