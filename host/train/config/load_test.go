package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/plaintoml"
)

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tiny.v2.toml")
	if err := os.WriteFile(path, []byte(small), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path, []string{"train.steps=50"})
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join("runs", "tiny.v2"); c.Train.Steps != 50 || c.Train.Out != want {
		t.Errorf("steps %d, out %q, want 50 and %q", c.Train.Steps, c.Train.Out, want)
	}
}

func TestLoadRefusesFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct{ path, want string }{
		{filepath.Join(dir, "absent.toml"), ": no such file"},
		{dir, ": is a directory"},
		{write("file", "") + "/run.toml", ": cannot read: not a directory"},
		{write("huge.toml", strings.Repeat("# 456789\n", 1<<17)), ": larger than 1048576 bytes"},
		{write("binary.toml", "a = 1\n\xff\xfe"), ":2: not UTF-8 text"},
		{write("nul.toml", "a = \"\x00\""), ":1: not valid TOML"},
	} {
		_, err := Load(c.path, nil)
		if err == nil || !strings.HasPrefix(err.Error(), c.path+c.want) {
			t.Errorf("got  %v\nwant %s%s", err, c.path, c.want)
		}
		var e *plaintoml.Error
		if !errors.As(err, &e) || e.File != c.path {
			t.Errorf("%s: no *plaintoml.Error with the file in %T", c.path, err)
		}
	}
	if _, err := Load(filepath.Join(dir, "absent.toml"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v is not fs.ErrNotExist", err)
	}
}

func TestLoadUnreadable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret.toml")
	if err := os.WriteFile(path, []byte(small), 0o000); err != nil {
		t.Fatal(err)
	}
	if f, err := os.Open(path); err == nil {
		f.Close()
		t.Skip("this user may read every file")
	}
	_, err := Load(path, nil)
	if err == nil || !strings.HasPrefix(err.Error(), path+": cannot read: permission denied") {
		t.Errorf("got %v", err)
	}
}

func TestDefaultOut(t *testing.T) {
	for path, name := range map[string]string{
		"a/demo.toml": "demo", "demo": "demo", ".toml": "run", "": "run", "/": "run", "x.y.toml": "x.y",
	} {
		if got, want := defaultOut(path), filepath.Join("runs", name); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}

// Text that makes a naive parser slow or exhausts its stack is refused at
// once.
func TestHostileNesting(t *testing.T) {
	for name, text := range map[string]string{
		"dotted key":    strings.Repeat("a.", 1<<18) + "a = 1",
		"table":         "[" + strings.Repeat("a.", 1<<18) + "a]",
		"arrays":        "a = " + strings.Repeat("[", 1<<19),
		"closed arrays": "a = " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000),
		"inline tables": "a = " + strings.Repeat("{a = ", 1<<17),
		"mixed":         "a = " + strings.Repeat("[{a = ", 100) + "1" + strings.Repeat("}]", 100),
	} {
		_, err := Parse("x.toml", []byte(text), nil)
		if err == nil || !strings.Contains(err.Error(), "nested") {
			t.Errorf("%s: %.200v", name, err)
		}
		if _, err = Parse("x.toml", []byte(small), []string{text}); err == nil {
			t.Errorf("%s: accepted as an override", name)
		}
	}
}
