package vfs_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cage-qat/cage/internal/vfs"
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
		content, err := vfs.At(name).ReadFile()
		switch {
		case want == "" && (err != nil || string(content) != "text"):
			t.Errorf("%s: %q, %v", name, content, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), name)):
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	// They cannot be opened for writing, either.
	for _, flag := range []int{os.O_WRONLY, os.O_RDWR | os.O_CREATE, os.O_WRONLY | os.O_APPEND} {
		if _, err := vfs.OS.OpenFile(at("pipe"), flag, 0o644); err == nil ||
			!strings.Contains(err.Error(), "is a named pipe") {
			t.Errorf("flag %d: %v", flag, err)
		}
	}
	f, err := vfs.OS.OpenFile(at("new"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write([]byte("new")); err != nil {
		t.Error(err)
	}
}

func TestKindsOfErrors(t *testing.T) {
	_, err := vfs.At(t.TempDir()).Open()
	if _, ok := errors.AsType[*vfs.NotRegularError](err); !ok || !errors.Is(err, syscall.EISDIR) {
		t.Errorf("a directory: %v", err)
	}
	if _, err := vfs.At("none").Open(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// TestPointers checks that a Git LFS pointer cannot be read but can be overwritten, and that texts
// about pointers can be read.
func TestPointers(t *testing.T) {
	const pointer = "version https://git-lfs.github.com/spec/v1\noid " +
		"sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
	for content, want := range map[string]bool{
		pointer: true,
		strings.ReplaceAll(pointer, "\n", "\r\n"):                      true,
		strings.Replace(pointer, "oid", "ext-0-foo sha256:00\noid", 1): true,
		strings.Replace(pointer, "git-lfs.github", "hawser.github", 1): true,
		"": false, "text": false, " " + pointer: false, "See:\n" + pointer: false,
		"version https://git-lfs.github.com/spec/v1 begins a pointer\n": false,
		pointer + strings.Repeat("x", vfs.MaxPointer):                   false,
	} {
		path := filepath.Join(t.TempDir(), "model.safetensors")
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := vfs.At(path).ReadFile()
		if want != errors.Is(err, vfs.ErrPointer) || !want && string(got) != content || want &&
			!strings.Contains(err.Error(), path+": is a Git LFS pointer") {
			t.Errorf("%q: %q, %v", content, got, err)
		}
		f, err := vfs.OS.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
}
